// Unaligned little-endian loads and stores for packed wire structs.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace fs3 {

static_assert(std::endian::native == std::endian::little, "wire formats are little-endian");

template <typename T>
T LoadLittleEndian(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

template <typename T>
void StoreLittleEndian(uint8_t* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}

}  // namespace fs3
