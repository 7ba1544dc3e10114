#include "fs3/native/net/buffer.h"

#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

namespace fs3 {
namespace {

constexpr int kClassFirst = std::countr_zero(Buffer::kAlignment);
constexpr int kClasses = 16;  // 4 KiB to 128 MiB, powers of two

int ClassOf(size_t size) {
  const size_t rounded = std::bit_ceil(size < Buffer::kAlignment ? Buffer::kAlignment : size);
  return std::countr_zero(rounded) - kClassFirst;
}

size_t ClassBytes(int size_class) { return Buffer::kAlignment << size_class; }

class Cache {
 public:
  Buffer::Memory Take(int size_class) {
    auto& list = free_[static_cast<size_t>(size_class)];
    if (list.empty()) return nullptr;
    Buffer::Memory data = std::move(list.back());
    list.pop_back();
    bytes_ -= ClassBytes(size_class);
    return data;
  }

  // Frees it when the cache is full.
  void Give(int size_class, Buffer::Memory data) {
    if (bytes_ + ClassBytes(size_class) > Buffer::kCacheBytesMax) return;
    free_[static_cast<size_t>(size_class)].push_back(std::move(data));
    bytes_ += ClassBytes(size_class);
  }

 private:
  std::array<std::vector<Buffer::Memory>, kClasses> free_;
  size_t bytes_ = 0;
};

// Buffers can outlive the cache of a thread that is ending; they are then freed for good.
thread_local bool cache_ended = false;

struct CacheHolder {
  Cache cache;
  ~CacheHolder() { cache_ended = true; }
};

Cache* ThreadCache() {
  if (cache_ended) return nullptr;
  thread_local CacheHolder holder;
  return &holder.cache;
}

}  // namespace

void Buffer::FreeAligned::operator()(uint8_t* data) const {
  std::free(data);  // NOLINT(cppcoreguidelines-owning-memory): this is what owns it
}

Buffer Buffer::Allocate(size_t size) {
  const int size_class = ClassOf(size);
  const size_t capacity = ClassBytes(size_class);
  Cache* cache = size_class < kClasses ? ThreadCache() : nullptr;
  Memory data = cache != nullptr ? cache->Take(size_class) : nullptr;
  if (data == nullptr) {
    // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): the pointer that owns it takes it at once
    data.reset(static_cast<uint8_t*>(std::aligned_alloc(kAlignment, capacity)));
  }
  if (data == nullptr) {
    std::fprintf(stderr, "fs3: out of memory for a buffer of %zu bytes\n", capacity);
    std::abort();
  }
  return Buffer(std::move(data), size, capacity);
}

void Buffer::Free() {
  if (data_ == nullptr) return;
  const int size_class = ClassOf(capacity_);
  Cache* cache = size_class < kClasses ? ThreadCache() : nullptr;
  if (cache != nullptr) cache->Give(size_class, std::move(data_));
}

}  // namespace fs3
