// CRC32C (Castagnoli, RFC 3720 appendix B.4), standard form: initial and final inversion included,
// so Crc32c("123456789") == 0xE3069283.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fs3 {

uint32_t Crc32c(const void* data, size_t size, uint32_t previous = 0);

inline uint32_t Crc32c(std::span<const uint8_t> data, uint32_t previous = 0) {
  return Crc32c(data.data(), data.size(), previous);
}

// CRC of A||B from the CRCs of both and the length of B: lets a frame's bulk CRC be derived from
// granule CRCs that were verified anyway, without touching the bytes twice.
uint32_t Crc32cCombine(uint32_t crc_a, uint32_t crc_b, size_t length_b);

}  // namespace fs3
