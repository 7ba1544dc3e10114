// Buffer: page-aligned memory for bulk data, recycled per thread.
//
// A fresh mebibyte costs 256 page faults, as much as copying it; so freed buffers are kept in a
// bounded cache of the thread that frees them. A buffer may be freed on any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace fs3 {

class Buffer {
 public:
  static constexpr size_t kAlignment = 4096;
  // What one thread keeps for reuse.
  static constexpr size_t kCacheBytesMax = size_t{64} << 20;

  struct FreeAligned {
    void operator()(uint8_t* data) const;
  };
  using Memory = std::unique_ptr<uint8_t, FreeAligned>;

  Buffer() = default;
  // At least `size` bytes, contents undefined. Aborts when memory is exhausted.
  static Buffer Allocate(size_t size);

  Buffer(Buffer&& other) noexcept
      : data_(std::move(other.data_)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { Free(); }

  uint8_t* data() { return data_.get(); }
  const uint8_t* data() const { return data_.get(); }
  size_t size() const { return size_; }          // as asked for
  size_t capacity() const { return capacity_; }  // as usable, a multiple of the alignment
  std::span<uint8_t> span() { return {data_.get(), size_}; }
  std::span<const uint8_t> span() const { return {data_.get(), size_}; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  Buffer(Memory data, size_t size, size_t capacity)
      : data_(std::move(data)), size_(size), capacity_(capacity) {}
  void Free();

  Memory data_;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace fs3
