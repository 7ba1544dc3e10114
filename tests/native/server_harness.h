// A chain of storage servers in this process, on real sockets and real files, and a client.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "fs3/native/client/io_client.h"
#include "fs3/native/server/storage_server.h"

namespace fs3 {

using namespace std::chrono_literals;  // NOLINT: tests only

inline constexpr ClusterId kTestCluster{1, 2, 3};
inline constexpr ChainId kTestChain = 5;
inline constexpr InodeId kTestInode = 42;
inline constexpr uint32_t kTestChunk = 64U << 10;
inline constexpr std::chrono::seconds kTestTimeout(20);

inline std::vector<uint8_t> RandomBytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> bytes(size);
  for (auto& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

class ServerTest : public ::testing::Test {
 protected:
  struct Node {
    std::unique_ptr<StorageServer> server;
    TargetId target = 0;
    Endpoint endpoint;
  };

  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() /
            ("fs3-server-test-" + std::to_string(getpid()) + "-" + std::to_string(++runs_));
    EngineOptions options;
    options.self = {kTestCluster, PeerKind::kClient, 0, 999, 0};
    client_ = NewClient(999);
  }

  void TearDown() override {
    client_.reset();
    nodes_.clear();
    std::filesystem::remove_all(root_);
  }

  static std::unique_ptr<IoClient> NewClient(Incarnation incarnation) {
    EngineOptions options;
    options.self = {kTestCluster, PeerKind::kClient, 0, incarnation, 0};
    auto client = IoClient::Start(options);
    EXPECT_TRUE(client.ok());
    return std::move(client.value());
  }

  void StartNodes(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      nodes_.emplace_back();
      StartNode(i);
    }
  }

  // A node that was stopped starts again, as another incarnation on the same files.
  void StartNode(size_t i) {
    StorageServer::Options options;
    options.self = {kTestCluster, PeerKind::kStorage, static_cast<NodeId>(i + 1), ++incarnation_,
                    0};
    auto server = StorageServer::Start(options);
    ASSERT_TRUE(server.ok()) << server.status().message();
    Node& node = nodes_[i];
    node.server = std::move(server.value());
    node.target = uint64_t{i + 1} << 32;
    node.endpoint = node.server->endpoints().front();
    const Status status = node.server->AddTarget(StoreOptions(i), 0);
    ASSERT_TRUE(status.ok()) << status.message();
  }

  TargetStoreOptions StoreOptions(size_t i) const {
    TargetStoreOptions options;
    options.directory = root_ / std::to_string(i);
    options.identity = {uint64_t{i + 1} << 32, 7};
    options.create = true;
    options.capacity_bytes = 256U << 20;
    return options;
  }

  void StopNode(size_t i) { nodes_[i].server.reset(); }

  // A new version of the chain goes to the nodes that run, and to the client.
  void SetChain(const std::vector<size_t>& serving, int syncing = -1) {
    ++version_;
    ChainConfig config{kTestChain, version_, {}};
    ChainRoute route{kTestChain, version_, {}};
    for (size_t i : serving) {
      config.members.push_back({nodes_[i].target, 7, false, nodes_[i].endpoint});
      route.serving.push_back({nodes_[i].target, nodes_[i].endpoint});
    }
    if (syncing >= 0) {
      const Node& node = nodes_[static_cast<size_t>(syncing)];
      config.members.push_back({node.target, 7, true, node.endpoint});
    }
    for (Node& node : nodes_) {
      if (node.server == nullptr) continue;
      const Status status = node.server->SetChain(node.target, config);
      ASSERT_TRUE(status.ok()) << status.message();
    }
    route_ = route;
    ASSERT_TRUE(client_->SetRouting({route}).ok());
  }

  uint32_t Open(uint64_t length = 0, uint64_t truncate_version = 0, IoClient* client = nullptr) {
    IoClient& at = client != nullptr ? *client : *client_;
    return at.OpenFile(kTestInode, kTestChunk, {kTestChain}, length, truncate_version).value();
  }

  Code Write(uint32_t handle, uint64_t offset, const std::vector<uint8_t>& bytes,
             std::chrono::nanoseconds timeout = kTestTimeout, IoClient* client = nullptr) {
    IoClient& at = client != nullptr ? *client : *client_;
    const IoRequest request{handle, 0, offset, bytes.size(), 0};
    return Wait(at.SubmitWrite({&request, 1}, bytes, timeout, false));
  }

  Code Read(uint32_t handle, uint64_t offset, size_t size, std::vector<uint8_t>* bytes,
            std::chrono::nanoseconds timeout = kTestTimeout) {
    bytes->assign(size, 0xEE);
    const IoRequest request{handle, 0, offset, size, 0};
    const auto ticket = client_->SubmitRead({&request, 1}, *bytes, timeout, false);
    const Code code = Wait(ticket);
    bytes->resize(ticket.value()->results().front().length);
    return code;
  }

  Code Wait(const Result<std::shared_ptr<Ticket>>& ticket, uint64_t* length = nullptr) {
    EXPECT_TRUE(ticket.ok()) << ticket.status().message();
    EXPECT_TRUE(ticket.value()->Wait(60s)) << "a ticket without an end";
    const IoResult& result = ticket.value()->results().front();
    if (length != nullptr) *length = result.length;
    return static_cast<Code>(result.code);
  }

  // Reads the file from one replica only.
  std::vector<uint8_t> ReadFrom(size_t node, size_t size) {
    const auto reader = NewClient(++incarnation_);
    ChainRoute route{kTestChain, version_, {{nodes_[node].target, nodes_[node].endpoint}}};
    EXPECT_TRUE(reader->SetRouting({route}).ok());
    const uint32_t handle = Open(size, 0, reader.get());
    std::vector<uint8_t> bytes(size, 0xEE);
    const IoRequest request{handle, 0, 0, size, 0};
    EXPECT_EQ(Wait(reader->SubmitRead({&request, 1}, bytes, kTestTimeout, false)), Code::kOk);
    return bytes;
  }

  uint64_t ClientCounter(const std::string& name) const {
    for (const auto& [known, value] : client_->Counters()) {
      if (known == name) return value;
    }
    ADD_FAILURE() << "no counter " << name;
    return 0;
  }

  bool WaitForEvent(size_t node, ServerEvent::Kind kind, std::chrono::seconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (std::chrono::steady_clock::now() < deadline) {
      for (const ServerEvent& event : nodes_[node].server->PollEvents(100ms)) {
        if (event.kind == kind) return true;
      }
    }
    return false;
  }

  inline static std::atomic<int> runs_ = 0;
  std::filesystem::path root_;
  std::vector<Node> nodes_;
  std::unique_ptr<IoClient> client_;
  ChainVersion version_ = 0;
  ChainRoute route_;
  Incarnation incarnation_ = 1000;
};

}  // namespace fs3
