#include "fs3/native/chunk/granule_crc.h"

#include <array>
#include <bit>
#include <vector>

namespace fs3 {

CrcAppender::CrcAppender(size_t length) {
  for (uint32_t byte = 0; byte < 4; ++byte) {
    for (uint32_t value = 0; value < 256; ++value) {
      table_[byte][value] = Crc32cCombine(value << (8 * byte), 0, length);
    }
  }
  const std::vector<uint8_t> zeros(length);
  zeros_ = Crc32c(zeros);
}

const CrcAppender& AppenderFor(uint32_t granule) {
  static const std::array<CrcAppender, 7> kAppenders = {
      CrcAppender(4 << 10),  CrcAppender(8 << 10),   CrcAppender(16 << 10), CrcAppender(32 << 10),
      CrcAppender(64 << 10), CrcAppender(128 << 10), CrcAppender(256 << 10)};
  return kAppenders[std::countr_zero(granule) - 12];
}

}  // namespace fs3
