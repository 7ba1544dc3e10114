#include "fs3/native/frame/hello.h"

#include <algorithm>

#include "fs3/native/frame/little_endian.h"

namespace fs3 {
namespace {

std::string ProtocolText(const Hello& hello) {
  return std::to_string(hello.protocol_min) + ".." + std::to_string(hello.protocol_max);
}

}  // namespace

std::vector<uint8_t> EncodeHello(const Hello& hello) {
  const size_t reason_length = std::min(hello.reason.size(), kHelloReasonMax);
  std::vector<uint8_t> bytes(kHelloFixedSize + reason_length);
  uint8_t* out = bytes.data();
  const Identity& who = hello.identity;
  StoreLittleEndian(out + hello_offset::kStructLength, static_cast<uint16_t>(kHelloFixedSize));
  StoreLittleEndian(out + hello_offset::kProtocolMin, hello.protocol_min);
  StoreLittleEndian(out + hello_offset::kProtocolMax, hello.protocol_max);
  StoreLittleEndian(out + hello_offset::kKind, static_cast<uint16_t>(who.kind));
  StoreLittleEndian(out + hello_offset::kFeatures, who.features);
  std::copy(who.cluster_id.begin(), who.cluster_id.end(), out + hello_offset::kClusterId);
  StoreLittleEndian(out + hello_offset::kIncarnation, who.incarnation);
  StoreLittleEndian(out + hello_offset::kNodeId, who.node_id);
  StoreLittleEndian(out + hello_offset::kReasonLength, static_cast<uint32_t>(reason_length));
  std::copy_n(hello.reason.begin(), reason_length, out + kHelloFixedSize);
  return bytes;
}

Result<Hello> DecodeHello(std::span<const uint8_t> body) {
  if (body.size() < kHelloFixedSize) return Status(Code::kCorrupt, "HELLO is too short");
  const uint8_t* in = body.data();
  const size_t struct_length = LoadLittleEndian<uint16_t>(in + hello_offset::kStructLength);
  const size_t reason_length = LoadLittleEndian<uint32_t>(in + hello_offset::kReasonLength);
  if (struct_length < kHelloFixedSize || reason_length > kHelloReasonMax ||
      body.size() != struct_length + reason_length) {
    return Status(Code::kCorrupt, "HELLO has inconsistent lengths");
  }
  Hello hello;
  Identity& who = hello.identity;
  hello.protocol_min = LoadLittleEndian<uint16_t>(in + hello_offset::kProtocolMin);
  hello.protocol_max = LoadLittleEndian<uint16_t>(in + hello_offset::kProtocolMax);
  who.kind = static_cast<PeerKind>(LoadLittleEndian<uint16_t>(in + hello_offset::kKind));
  who.features = LoadLittleEndian<uint64_t>(in + hello_offset::kFeatures);
  std::copy_n(in + hello_offset::kClusterId, who.cluster_id.size(), who.cluster_id.begin());
  who.incarnation = LoadLittleEndian<uint64_t>(in + hello_offset::kIncarnation);
  who.node_id = LoadLittleEndian<uint32_t>(in + hello_offset::kNodeId);
  hello.reason.assign(body.begin() + static_cast<ptrdiff_t>(struct_length), body.end());
  return hello;
}

Result<uint8_t> NegotiateHello(const Hello& server, const Hello& client) {
  const uint16_t low = std::max(server.protocol_min, client.protocol_min);
  const uint16_t high = std::min(server.protocol_max, client.protocol_max);
  if (low > high) {
    return Status(Code::kVersionMismatch, "the client speaks fs3rpc " + ProtocolText(client) +
                                              ", the server " + ProtocolText(server) +
                                              "; upgrade the older side");
  }
  const ClusterId& wanted = client.identity.cluster_id;
  if (wanted != kAnyCluster && wanted != server.identity.cluster_id) {
    return Status(Code::kVersionMismatch, "the client belongs to cluster " + ClusterIdText(wanted) +
                                              ", this server to cluster " +
                                              ClusterIdText(server.identity.cluster_id) +
                                              "; check the cluster URL or directory");
  }
  return static_cast<uint8_t>(high);
}

std::string ClusterIdText(const ClusterId& id) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : id) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

}  // namespace fs3
