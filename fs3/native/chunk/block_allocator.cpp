#include "fs3/native/chunk/block_allocator.h"

#include <algorithm>
#include <cassert>

namespace fs3 {
namespace {

uint32_t BlocksPerFile(uint8_t class_log2) { return 1U << (kBlockFileLog2 - class_log2); }

}  // namespace

FileId BlockRun::file() const {
  return {FileId::Kind::kBlock, class_log2, first / BlocksPerFile(class_log2)};
}

uint64_t BlockRun::position() const {
  return uint64_t{first % BlocksPerFile(class_log2)} << class_log2;
}

void BlockAllocator::Grow(Class& blocks, uint32_t count) {
  if (count <= blocks.used.size()) return;
  blocks.used.resize(count);
  blocks.backed.resize(count);
}

std::optional<uint32_t> BlockAllocator::Take(uint8_t class_log2) {
  Class& blocks = At(class_log2);
  if (blocks.free.empty()) return std::nullopt;
  const uint32_t number = blocks.free.front();
  blocks.free.pop_front();
  blocks.used[number] = true;
  used_bytes_ += uint64_t{1} << class_log2;
  return number;
}

void BlockAllocator::Free(uint8_t class_log2, uint32_t number) {
  Class& blocks = At(class_log2);
  assert(blocks.used[number] && blocks.backed[number]);
  blocks.used[number] = false;
  blocks.free.push_back(number);
  used_bytes_ -= uint64_t{1} << class_log2;
}

void BlockAllocator::MarkUsed(uint8_t class_log2, uint32_t number) {
  Class& blocks = At(class_log2);
  Grow(blocks, number + 1);
  if (blocks.used[number]) return;
  blocks.used[number] = true;
  blocks.backed[number] = true;
  used_bytes_ += uint64_t{1} << class_log2;
  backed_bytes_ += uint64_t{1} << class_log2;
}

BlockRun BlockAllocator::NextUnbacked(uint8_t class_log2, uint64_t bytes_max) {
  Class& blocks = At(class_log2);
  const auto size = static_cast<uint32_t>(blocks.backed.size());
  while (blocks.unbacked_from < size && blocks.backed[blocks.unbacked_from]) {
    ++blocks.unbacked_from;
  }
  const uint32_t first = blocks.unbacked_from;
  const uint32_t in_file = BlocksPerFile(class_log2) - first % BlocksPerFile(class_log2);
  const uint64_t room = std::min<uint64_t>(in_file, bytes_max >> class_log2);
  uint32_t count = 1;
  while (count < room && (first + count >= size || !blocks.backed[first + count])) ++count;
  return {class_log2, first, count};
}

void BlockAllocator::AddBacked(const BlockRun& run) {
  Class& blocks = At(run.class_log2);
  Grow(blocks, run.first + run.count);
  for (uint32_t i = run.first; i < run.first + run.count; ++i) {
    assert(!blocks.backed[i]);
    blocks.backed[i] = true;
    blocks.free.push_back(i);
  }
  backed_bytes_ += run.bytes();
}

std::vector<BlockRun> BlockAllocator::FreeRuns() const {
  std::vector<BlockRun> out;
  for (uint8_t log2 = kBlockClassMin; log2 <= kBlockClassMax; ++log2) {
    const Class& blocks = At(log2);
    for (uint32_t i = 0; i < blocks.used.size(); ++i) {
      if (blocks.used[i]) continue;
      if (!out.empty() && out.back().class_log2 == log2 &&
          out.back().first + out.back().count == i && i % BlocksPerFile(log2) != 0) {
        ++out.back().count;
      } else {
        out.push_back({log2, i, 1});
      }
    }
  }
  return out;
}

std::vector<BlockRun> BlockAllocator::GiveUpBacked(uint64_t bytes_min) {
  std::vector<BlockRun> out;
  uint64_t given = 0;
  for (uint8_t log2 = kBlockClassMax; log2 >= kBlockClassMin; --log2) {
    Class& blocks = At(log2);
    while (!blocks.free.empty() && given < bytes_min) {
      const uint32_t number = blocks.free.front();
      blocks.free.pop_front();
      blocks.backed[number] = false;
      blocks.unbacked_from = std::min(blocks.unbacked_from, number);
      out.push_back({log2, number, 1});
      given += out.back().bytes();
    }
  }
  backed_bytes_ -= given;
  return out;
}

}  // namespace fs3
