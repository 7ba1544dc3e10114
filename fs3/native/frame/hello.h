// HELLO: the first frame on a connection, in both directions. It tells who speaks, which protocols
// and features are understood and which cluster is meant; the answer carries the same struct and,
// when the peers do not match, a sentence for a person (design section 4).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fs3/native/base/ids.h"
#include "fs3/native/base/status.h"

namespace fs3 {

using ClusterId = std::array<uint8_t, 16>;

// What a client sends that does not know its cluster yet: the answer tells it.
inline constexpr ClusterId kAnyCluster{};

enum class PeerKind : uint16_t { kClient = 1, kStorage = 2, kMeta = 3 };

// Who a process is on the wire.
struct Identity {
  ClusterId cluster_id = kAnyCluster;
  PeerKind kind = PeerKind::kClient;
  NodeId node_id = 0;
  Incarnation incarnation = 0;
  uint64_t features = 0;
  bool operator==(const Identity&) const = default;
};

struct Hello {
  uint16_t protocol_min = 0;
  uint16_t protocol_max = 0;
  Identity identity;
  std::string reason;  // only in an answer that refuses
  bool operator==(const Hello&) const = default;
};

namespace hello_offset {
inline constexpr size_t kStructLength = 0;  // bytes of the fixed part; fields are only appended
inline constexpr size_t kProtocolMin = 2;
inline constexpr size_t kProtocolMax = 4;
inline constexpr size_t kKind = 6;
inline constexpr size_t kFeatures = 8;
inline constexpr size_t kClusterId = 16;
inline constexpr size_t kIncarnation = 32;
inline constexpr size_t kNodeId = 40;
inline constexpr size_t kReasonLength = 44;
}  // namespace hello_offset

inline constexpr size_t kHelloFixedSize = 48;
inline constexpr size_t kHelloReasonMax = 1024;
static_assert(hello_offset::kIncarnation == hello_offset::kClusterId + sizeof(ClusterId));
static_assert(hello_offset::kReasonLength + 4 == kHelloFixedSize);

std::vector<uint8_t> EncodeHello(const Hello& hello);

// kCorrupt when the body is not a HELLO of any version.
Result<Hello> DecodeHello(std::span<const uint8_t> body);

// The protocol both ends will speak, or kVersionMismatch with a sentence that names both sides and
// what to do. A client may leave its cluster open; servers always name theirs.
Result<uint8_t> NegotiateHello(const Hello& server, const Hello& client);

std::string ClusterIdText(const ClusterId& id);

}  // namespace fs3
