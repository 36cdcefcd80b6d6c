#include "cli/report/page_writer.h"

#include "lockstep/base/version.h"
#include "lockstep/base/whole_file.h"
#include "lockstep/report/page.h"

namespace lockstep::cli {

PageWriter::PageWriter(std::string folder)
    : folder_(std::move(folder)), reader_(folder_ + "/metrics.jsonl") {}

void PageWriter::write(std::optional<std::chrono::seconds> reload) {
  reader_.read_more();
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const PageOptions options{.now = std::chrono::duration<double>(now).count(),
                            .reload_after = reload ? static_cast<double>(reload->count()) : 0,
                            .version = kVersion};
  write_whole(path(), run_page(read_run(folder_, reader_.metrics(), reload.has_value()), options));
}

}  // namespace lockstep::cli
