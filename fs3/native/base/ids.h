// Identifiers shared by the whole data plane (design section 3). Python's twins are in fs3/ids.py.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <functional>

namespace fs3 {

using NodeId = uint32_t;
using TargetId = uint64_t;  // node << 32 | disk << 16 | index
using ChainId = uint32_t;
using ChainVersion = uint64_t;
using ChainSequence = uint64_t;
using InodeId = uint64_t;
using Incarnation = uint64_t;

// inode 8, index 4, generation 2, shard 2; big-endian on the wire and on disk, so that the chunks
// of a file are contiguous under byte order.
struct ChunkId {
  InodeId inode = 0;
  uint32_t index = 0;
  uint16_t generation = 0;
  uint16_t shard = 0;

  static constexpr size_t kSize = 16;
  auto operator<=>(const ChunkId&) const = default;

  std::array<uint8_t, kSize> Encode() const {
    std::array<uint8_t, kSize> out{};
    for (int i = 0; i < 8; ++i) out[i] = static_cast<uint8_t>(inode >> (56 - 8 * i));
    for (int i = 0; i < 4; ++i) out[8 + i] = static_cast<uint8_t>(index >> (24 - 8 * i));
    out[12] = static_cast<uint8_t>(generation >> 8);
    out[13] = static_cast<uint8_t>(generation);
    out[14] = static_cast<uint8_t>(shard >> 8);
    out[15] = static_cast<uint8_t>(shard);
    return out;
  }

  static ChunkId Decode(const uint8_t* in) {
    ChunkId id;
    for (int i = 0; i < 8; ++i) id.inode = id.inode << 8 | in[i];
    for (int i = 0; i < 4; ++i) id.index = id.index << 8 | in[8 + i];
    id.generation = static_cast<uint16_t>(in[12] << 8 | in[13]);
    id.shard = static_cast<uint16_t>(in[14] << 8 | in[15]);
    return id;
  }
};

// Versions are compared as a pair, never by a number alone: a sequence restarts its meaning with
// every chain version.
struct Version {
  ChainVersion chain_version = 0;
  ChainSequence sequence = 0;
  auto operator<=>(const Version&) const = default;
};

struct ChunkIdHash {
  size_t operator()(const ChunkId& id) const {
    uint64_t h = id.inode * 0x9E3779B97F4A7C15ULL;
    h ^= (static_cast<uint64_t>(id.index) << 32 | static_cast<uint64_t>(id.generation) << 16 |
          id.shard) +
         0x9E3779B97F4A7C15ULL + (h << 6) + (h >> 2);
    return static_cast<size_t>(h ^ (h >> 29));
  }
};

}  // namespace fs3
