// What an update carries through the replication machine: where its data lies.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fs3/native/chunk/chunk_store.h"
#include "fs3/native/replica/update.h"

namespace fs3 {

struct UpdateData : replica::Payload {
  std::shared_ptr<const void> keep;  // owns `bytes`
  std::span<const uint8_t> bytes;
  uint32_t crc = 0;  // of `bytes`, as their sender saw them
  // kReplace only.
  bool tombstone = false;
  std::vector<OnceRecord> records;
};

}  // namespace fs3
