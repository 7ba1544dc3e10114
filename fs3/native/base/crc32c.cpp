#include "fs3/native/base/crc32c.h"

#include <isa-l/crc.h>

#include <array>

namespace fs3 {
namespace {

constexpr uint32_t kPolynomialReflected = 0x82F63B78U;

// A linear operator on a 32-bit CRC register; column i is the image of bit i (Mark Adler's method).
using Matrix = std::array<uint32_t, 32>;

uint32_t Apply(const Matrix& matrix, uint32_t vector) {
  uint32_t sum = 0;
  for (int i = 0; vector != 0; ++i, vector >>= 1) {
    if (vector & 1) sum ^= matrix[i];
  }
  return sum;
}

Matrix Square(const Matrix& matrix) {
  Matrix out{};
  for (int i = 0; i < 32; ++i) out[i] = Apply(matrix, matrix[i]);
  return out;
}

// operators[k] appends 2^k zero bytes.
std::array<Matrix, 64> MakeZeroOperators() {
  Matrix one_bit{};
  one_bit[0] = kPolynomialReflected;
  for (int i = 1; i < 32; ++i) one_bit[i] = 1U << (i - 1);
  Matrix byte = Square(Square(Square(one_bit)));
  std::array<Matrix, 64> operators{};
  for (auto& op : operators) {
    op = byte;
    byte = Square(byte);
  }
  return operators;
}

}  // namespace

uint32_t Crc32c(const void* data, size_t size, uint32_t previous) {
  uint32_t crc = ~previous;
  auto* bytes = static_cast<unsigned char*>(const_cast<void*>(data));
  constexpr size_t kStep = size_t{1} << 30;  // ISA-L takes an int length
  while (size > 0) {
    const size_t step = size < kStep ? size : kStep;
    crc = crc32_iscsi(bytes, static_cast<int>(step), crc);
    bytes += step;
    size -= step;
  }
  return ~crc;
}

uint32_t Crc32cCombine(uint32_t crc_a, uint32_t crc_b, size_t length_b) {
  static const std::array<Matrix, 64> kOperators = MakeZeroOperators();
  for (size_t k = 0; length_b != 0; ++k, length_b >>= 1) {
    if (length_b & 1) crc_a = Apply(kOperators[k], crc_a);
  }
  return crc_a ^ crc_b;
}

}  // namespace fs3
