// Method numbers of fs3rpc, in one place so that no two services take the same one. A number is
// never reused.
#pragma once

#include <cstdint>

namespace fs3 {

// Answered by every connection itself.
inline constexpr uint16_t kMethodHello = 1;
inline constexpr uint16_t kMethodPing = 2;

// Ranges. The numbers inside are declared by the service that owns the range.
inline constexpr uint16_t kMethodChunkFirst = 0x0100;  // client -> storage: chunk operations
inline constexpr uint16_t kMethodChunkLast = 0x01FF;
inline constexpr uint16_t kMethodReplicaFirst = 0x0200;  // storage -> storage: replication
inline constexpr uint16_t kMethodReplicaLast = 0x02FF;
inline constexpr uint16_t kMethodMetadataFirst = 0x0400;  // client -> meta: msgpack, opaque here
inline constexpr uint16_t kMethodMetadataLast = 0x04FF;

}  // namespace fs3
