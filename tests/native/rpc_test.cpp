// The service whose operations are written elsewhere, and the channel for callers on other threads.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <thread>

#include "fs3/native/net/counters.h"
#include "fs3/native/net/rpc_channel.h"
#include "fs3/native/net/rpc_server.h"

namespace fs3 {
namespace {

using namespace std::chrono_literals;

constexpr uint16_t kMethod = 0x0400;
constexpr ClusterId kCluster{8, 8};

std::unique_ptr<RpcServer> StartServer(const RpcServer::Options& options = {}) {
  auto started = RpcServer::Start({"127.0.0.1", 0}, {kCluster, PeerKind::kMeta, 4, 55, 0}, options);
  EXPECT_TRUE(started.ok()) << started.status().message();
  return std::move(started.value());
}

Result<std::unique_ptr<RpcChannel>> Connect(uint16_t port, const ClusterId& cluster = kCluster) {
  return RpcChannel::Connect({"127.0.0.1", port}, {cluster, PeerKind::kClient, 0, 77, 0}, 1s);
}

// Answers every request with its own body until the server closes.
class EchoThread {
 public:
  explicit EchoThread(RpcServer& server) : server_(server), thread_([this] { Serve(); }) {}
  ~EchoThread() {
    server_.Close();
    thread_.join();
  }
  std::atomic<size_t> largest_batch{0};

 private:
  void Serve() {
    while (!server_.is_closed()) {
      std::vector<RpcReply> replies;
      for (RpcRequest& request : server_.Poll(256, 10s)) {
        EXPECT_EQ(request.peer_incarnation, 77U);
        replies.push_back({request.connection_id, request.request_id, 0, std::move(request.body)});
      }
      largest_batch = std::max(largest_batch.load(), replies.size());
      server_.Reply(std::move(replies));
    }
  }

  RpcServer& server_;
  std::thread thread_;
};

TEST(Rpc, BatchesComeBackInOrder) {
  const auto server = StartServer();
  EchoThread echo(*server);
  const auto channel = std::move(Connect(server->port()).value());
  EXPECT_EQ(channel->peer().node_id, 4U);
  std::vector<std::string> bodies;
  for (int i = 0; i < 500; ++i) bodies.push_back("body " + std::to_string(i));
  std::vector<RpcCall> calls;
  for (const std::string& body : bodies) calls.push_back({kMethod, body});
  const auto batch = channel->Start(calls, 10s);
  ASSERT_TRUE(batch->Wait(10s));
  for (size_t i = 0; i < bodies.size(); ++i) {
    EXPECT_EQ(batch->outcomes()[i].status, 0U);
    EXPECT_FALSE(batch->outcomes()[i].is_text);
    EXPECT_EQ(batch->outcomes()[i].body, bodies[i]);
  }
  EXPECT_GT(echo.largest_batch.load(), 50U);
}

TEST(Rpc, ManyThreadsShareAChannel) {
  const auto server = StartServer();
  EchoThread echo(*server);
  const auto channel = std::move(Connect(server->port()).value());
  std::vector<std::thread> callers;
  for (int t = 0; t < 8; ++t) {
    callers.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const std::string body = std::to_string(t) + "/" + std::to_string(i);
        const auto batch = channel->Start({{kMethod, body}}, 10s);
        ASSERT_TRUE(batch->Wait(10s));
        ASSERT_EQ(batch->outcomes()[0].body, body);
      }
    });
  }
  for (auto& caller : callers) caller.join();
}

TEST(Rpc, SubmittedCallsCompleteThroughTheDescriptor) {
  const auto server = StartServer();
  EchoThread echo(*server);
  const auto channel = std::move(Connect(server->port()).value());
  std::map<uint64_t, std::string> expected;
  for (int i = 0; i < 50; ++i) {
    const std::string body = std::to_string(i);
    expected[channel->Submit({kMethod, body}, 10s)] = body;
  }
  while (!expected.empty()) {
    pollfd waiting{channel->completion_fd(), POLLIN, 0};
    ASSERT_EQ(poll(&waiting, 1, 10'000), 1);
    for (const auto& [id, outcome] : channel->Completed()) {
      ASSERT_TRUE(expected.contains(id));
      EXPECT_EQ(outcome.body, expected[id]);
      expected.erase(id);
    }
  }
  pollfd waiting{channel->completion_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&waiting, 1, 0), 0);
}

TEST(Rpc, AFullQueueIsAnsweredBusy) {
  const auto server = StartServer({.queue_length_max = 3, .queue_bytes_max = 1 << 20});
  const auto channel = std::move(Connect(server->port()).value());
  const auto batch = channel->Start(std::vector<RpcCall>(5, {kMethod, "x"}), 10s);
  EXPECT_FALSE(batch->Wait(50ms));
  std::vector<RpcReply> replies;
  for (const RpcRequest& request : server->Poll(10, 10s)) {
    replies.push_back({request.connection_id, request.request_id, 0, "done"});
  }
  EXPECT_EQ(replies.size(), 3U);
  server->Reply(replies);
  server->Reply(replies);  // a second answer belongs to nobody
  ASSERT_TRUE(batch->Wait(10s));
  size_t busy = 0;
  for (const RpcOutcome& outcome : batch->outcomes()) {
    if (outcome.status == static_cast<uint32_t>(Code::kBusy)) ++busy;
    EXPECT_EQ(outcome.is_text, outcome.status != 0);
  }
  EXPECT_EQ(busy, 2U);
}

TEST(Rpc, PollGivesUpAfterItsTimeoutAndWakesOnClose) {
  const auto server = StartServer();
  const auto start = BootClock::now();
  EXPECT_TRUE(server->Poll(1, 20ms).empty());
  EXPECT_GE(BootClock::now() - start, 20ms);
  std::thread closer([&] {
    std::this_thread::sleep_for(20ms);
    server->Close();
  });
  EXPECT_TRUE(server->Poll(1, 60s).empty());
  EXPECT_TRUE(server->is_closed());
  closer.join();
}

TEST(Rpc, AServerThatGoesAwayFailsTheCallsInFlight) {
  auto server = StartServer();
  const uint16_t port = server->port();
  const auto channel = std::move(Connect(port).value());
  const auto batch = channel->Start({{kMethod, "x"}}, 10s);
  ASSERT_EQ(server->Poll(1, 10s).size(), 1U);
  server.reset();
  ASSERT_TRUE(batch->Wait(10s));
  EXPECT_EQ(batch->outcomes()[0].status, static_cast<uint32_t>(Code::kUnavailable));
  EXPECT_TRUE(batch->outcomes()[0].is_text);
  EXPECT_EQ(Connect(port).status().code(), Code::kUnavailable);
}

TEST(Rpc, AnotherClusterAndATakenPortAreRefusedAtTheStart) {
  const auto server = StartServer();
  EXPECT_EQ(Connect(server->port(), {1}).status().code(), Code::kVersionMismatch);
  const auto second =
      RpcServer::Start({"127.0.0.1", server->port()}, {kCluster, PeerKind::kMeta, 4, 56, 0}, {});
  EXPECT_EQ(second.status().code(), Code::kUnavailable);
}

TEST(Rpc, AClosedChannelFailsAndStaysUsableToAsk) {
  const auto server = StartServer();
  const auto channel = std::move(Connect(server->port()).value());
  const auto in_flight = channel->Start({{kMethod, "x"}}, 10s);
  channel->Close();
  channel->Close();
  ASSERT_TRUE(in_flight->Wait(10s));
  EXPECT_EQ(in_flight->outcomes()[0].status, static_cast<uint32_t>(Code::kUnavailable));
  const auto late = channel->Start({{kMethod, "x"}}, 10s);
  ASSERT_TRUE(late->Wait(0s));
  EXPECT_EQ(late->outcomes()[0].status, static_cast<uint32_t>(Code::kUnavailable));
}

#ifndef __SANITIZE_THREAD__  // which does not allow threads in a forked child
TEST(Rpc, AForkedChildFailsItsParentsChannelsAndMakesItsOwn) {
  auto server = StartServer();
  EchoThread echo(*server);
  auto channel = std::move(Connect(server->port()).value());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto inherited = channel->Start({{kMethod, "x"}}, 1s);
    const bool refused = inherited->Wait(1s) && inherited->outcomes()[0].is_text;
    channel.reset();
    auto own = Connect(server->port());
    if (!refused || !own.ok()) _exit(1);
    const auto batch = own.value()->Start({{kMethod, "x"}}, 5s);
    const bool answered = batch->Wait(5s) && batch->outcomes()[0].body == "x";
    own.value().reset();
    _exit(answered ? 0 : 2);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  const auto batch = channel->Start({{kMethod, "still here"}}, 10s);
  ASSERT_TRUE(batch->Wait(10s));
  EXPECT_EQ(batch->outcomes()[0].body, "still here");
}
#endif

}  // namespace
}  // namespace fs3
