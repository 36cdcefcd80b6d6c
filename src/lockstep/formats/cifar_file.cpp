#include "lockstep/formats/cifar_file.h"

#include <fmt/format.h>

#include <utility>

#include "lockstep/formats/refusal.h"

namespace lockstep {
namespace {

CifarKind kind_by_size(const FileBytes& file) {
  const bool ten = file.size() % (CifarFile::kPixelBytes + 1) == 0;
  const bool hundred = file.size() % (CifarFile::kPixelBytes + 2) == 0;
  if (ten && hundred) {
    refuse(file, 0,
           fmt::format("{} bytes can be records of CIFAR-10 or of CIFAR-100; give the kind",
                       file.size()));
  }
  return hundred ? CifarKind::cifar100 : CifarKind::cifar10;
}

}  // namespace

CifarFile::CifarFile(FileBytes file, CifarKind kind) : file_(std::move(file)), kind_(kind) {
  if (kind_ == CifarKind::detect) kind_ = kind_by_size(file_);
  if (const auto remainder = file_.size() % record_bytes(); remainder != 0) {
    refuse(file_, file_.size() - remainder,
           fmt::format("expected records of {} bytes (CIFAR-10: 3073, CIFAR-100: 3074), found {} "
                       "bytes left over",
                       record_bytes(), remainder));
  }
  num_images_ = file_.size() / record_bytes();
  check_labels();
}

std::span<const std::byte> CifarFile::pixels(std::uint64_t image) const {
  return file_.bytes().subspan(image * record_bytes() + label_bytes(), kPixelBytes);
}

int CifarFile::label(std::uint64_t image) const {
  return std::to_integer<int>(file_.bytes()[image * record_bytes() + label_bytes() - 1]);
}

// The format has no magic number: only valid labels distinguish a CIFAR file from other files.
void CifarFile::check_labels() const {
  constexpr int num_coarse = 20;
  for (std::uint64_t image = 0; image < num_images_; ++image) {
    const auto at = image * record_bytes();
    if (label(image) >= num_classes()) {
      refuse(file_, at + label_bytes() - 1,
             fmt::format("expected the label of image {} to be below {}, found {}", image,
                         num_classes(), label(image)));
    }
    const auto coarse = std::to_integer<int>(file_.bytes()[at]);
    if (kind_ == CifarKind::cifar100 && coarse >= num_coarse) {
      refuse(file_, at,
             fmt::format("expected the coarse label of image {} to be below {}, found {}", image,
                         num_coarse, coarse));
    }
  }
}

}  // namespace lockstep
