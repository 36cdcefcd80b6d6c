#include "lockstep/report/figure_text.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep {
namespace {

TEST(FigureText, HasTheUnitThatFitsTheSize) {
  EXPECT_EQ(figure_text(2.16114, Unit::plain), "2.1611");
  EXPECT_EQ(figure_text(0.000200012, Unit::plain), "0.0002");
  EXPECT_EQ(figure_text(0.000031, Unit::plain), "3.10e-05");
  EXPECT_EQ(figure_text(14832, Unit::count), "14.8k");
  EXPECT_EQ(figure_text(999.96, Unit::count), "1k");
  EXPECT_EQ(figure_text(0.939, Unit::fraction), "93.9 %");
  EXPECT_EQ(figure_text(0.00947, Unit::fraction), "0.95 %");
  EXPECT_EQ(figure_text(1, Unit::fraction), "100 %");
  EXPECT_EQ(figure_text(0.0000012, Unit::seconds), "1.2 µs");
  EXPECT_EQ(figure_text(138.12, Unit::milliseconds), "138 ms");
  EXPECT_EQ(figure_text(1.5 * (1 << 30), Unit::bytes), "1.5 GiB");
  EXPECT_EQ(figure_text(12.14e9, Unit::bytes_rate), "12.1 GB/s");
  EXPECT_EQ(figure_text(86.8e6, Unit::bytes_rate), "86.8 MB/s");
  EXPECT_EQ(figure_text(std::numeric_limits<double>::quiet_NaN(), Unit::count), "–");
}

TEST(FigureText, ADurationHasTwoUnitsAtMost) {
  EXPECT_EQ(figure_text(0.25, Unit::duration), "250 ms");
  EXPECT_EQ(figure_text(1.26, Unit::duration), "1.3 s");
  EXPECT_EQ(figure_text(59.6, Unit::duration), "1 min");
  EXPECT_EQ(figure_text(88, Unit::duration), "1 min 28 s");
  EXPECT_EQ(figure_text(3 * 3600 + 300, Unit::duration), "3 h 5 min");
  EXPECT_EQ(figure_text(50 * 3600, Unit::duration), "2 d 2 h");
}

TEST(FigureText, NeighbouringTicksHaveDifferentTexts) {
  for (const auto& [start, step] : {std::pair{2.0, 0.25}, {100.0, 0.5}, {0.001, 0.0005}}) {
    for (int i = 0; i < 20; ++i) {
      EXPECT_NE(tick_text(start + i * step, step, Unit::plain),
                tick_text(start + (i + 1) * step, step, Unit::plain))
          << start + i * step;
    }
  }
  EXPECT_EQ(tick_text(12500, 2500, Unit::count), "12.5k");
  EXPECT_EQ(tick_text(-1e-17, 0.25, Unit::plain), "0");
}

TEST(FigureText, ThousandsAreGrouped) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1234567), "1,234,567");
  EXPECT_EQ(grouped(-1234), "-1,234");
}

TEST(FigureText, TextOfAProgramCannotBecomeMarkup) {
  EXPECT_EQ(escaped("<a href=\"x\">'&'</a>"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
  EXPECT_EQ(escaped("a\xff\x1b[0mb"), "a\xEF\xBF\xBD\xEF\xBF\xBD[0mb");
  EXPECT_EQ(escaped("é µ 漢 🙂\n\t"), "é µ 漢 🙂\n\t");
}

}  // namespace
}  // namespace lockstep
