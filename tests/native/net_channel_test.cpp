// Client and server ends together: handshake, requests, bulk, deadlines, breaks, backpressure.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>
#include <numeric>
#include <random>

#include "frame_bytes.h"
#include "fs3/native/base/crc32c.h"
#include "fs3/native/net/channel.h"
#include "fs3/native/net/counters.h"
#include "fs3/native/net/listener.h"
#include "fs3/native/net/memory_transport.h"

namespace fs3 {
namespace {

using namespace std::chrono_literals;
using testing_frames::Bytes;
using testing_frames::RandomBytes;

constexpr uint16_t kEcho = 0x0400;      // answers with body and bulk
constexpr uint16_t kNoAnswer = 0x0401;  // never answers
constexpr uint16_t kFail = 0x0402;      // answers kNotFound
constexpr uint16_t kHangUp = 0x0403;    // closes the connection
constexpr ClusterId kCluster{1, 2, 3};

Identity ServerIdentity() { return {kCluster, PeerKind::kStorage, 7, 1234, 0b0110}; }
Identity ClientIdentity() { return {kCluster, PeerKind::kClient, 0, 99, 0b0011}; }

class EchoService : public ConnectionHandler {
 public:
  void OnReady(Connection& connection) override {
    peer = connection.peer();
    features = connection.features();
    if (deaf) connection.PauseReceive();
  }
  void OnFrame(Connection& connection, Frame& frame) override {
    ++frames;
    switch (frame.header.method) {
      case kEcho:
        return Echo(connection, frame);
      case kFail: {
        const Status status =
            connection.SendError(frame.header, {Code::kNotFound, "no such chunk"});
        EXPECT_TRUE(status.ok());
        return;
      }
      case kHangUp:
        return connection.Close();
      default:
        return;
    }
  }
  void OnClosed(Connection&, CloseReason reason, const Status& status) override {
    ++closed;
    last_reason = reason;
    last_status = status;
  }

  Identity peer;
  uint64_t features = 0;
  bool deaf = false;
  int frames = 0;
  std::atomic<int> closed{0};
  std::atomic<int> released{0};
  CloseReason last_reason = CloseReason::kLocal;
  Status last_status;

 private:
  void Echo(Connection& connection, Frame& frame) {
    OutBulk bulk;
    if (frame.bulk) {
      bulk.pieces = {{frame.bulk.data(), frame.bulk.size()}};
      bulk.crc32c = frame.header.bulk_crc32c;
      bulk.on_released = [this, buffer = std::move(frame.bulk)] { ++released; };
    }
    const Status status =
        connection.SendReply(frame.header, Code::kOk, frame.body, std::move(bulk));
    EXPECT_TRUE(status.ok()) << status.message();
  }
};

struct Answer {
  Code code;
  bool from_server;
  std::string body;
  Bytes bulk;
};

class Network : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    thread_ = std::move(LoopThread::Start({}).value());
    OnLoop([&] { OpenListener(0); });
  }

  void TearDown() override {
    OnLoop([&] {
      for (auto& channel : channels_) channel->Close();
      listener_.reset();
    });
    thread_.reset();
    channels_.clear();
  }

  void OnLoop(Task task) { thread_->RunAndWait(std::move(task)); }
  Loop& loop() { return thread_->loop(); }
  Transport& transport() {
    return std::string(GetParam()) == "tcp" ? TcpTransport() : static_cast<Transport&>(memory_);
  }

  void OpenListener(uint16_t port) {
    auto opened = Listener::Open(loop(), transport(), {"127.0.0.1", port}, ServerIdentity(),
                                 server_options_, service_);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    listener_ = std::move(opened.value());
    port_ = listener_->port();
  }

  std::shared_ptr<Channel> NewChannel(const Identity& identity = ClientIdentity(),
                                      Channel::Options options = {}) {
    std::shared_ptr<Channel> channel;
    OnLoop([&] {
      channel = Channel::Create(loop(), transport(), {"127.0.0.1", port_}, identity, options);
    });
    channels_.push_back(channel);
    return channel;
  }

  std::future<Answer> Call(const std::shared_ptr<Channel>& channel, uint16_t method,
                           std::string body = "", iovec bulk = {},
                           std::chrono::nanoseconds timeout = 10s, std::vector<iovec> into = {}) {
    auto promise = std::make_shared<std::promise<Answer>>();
    loop().Post([=, this]() mutable {
      Request request;
      request.method = method;
      request.body = {reinterpret_cast<const uint8_t*>(body.data()), body.size()};
      if (bulk.iov_len > 0) request.bulk = {bulk};
      request.timeout = timeout;
      if (!into.empty()) {
        request.place_bulk = [into](const FrameHeader&, std::span<const uint8_t>) mutable {
          return BulkTarget::Into(std::move(into));
        };
      }
      request.on_reply = [promise](Reply& reply) {
        promise->set_value({reply.code,
                            reply.from_server,
                            {reply.body.begin(), reply.body.end()},
                            {reply.bulk.data(), reply.bulk.data() + reply.bulk.size()}});
      };
      channel->Call(std::move(request));
    });
    return promise->get_future();
  }

  MemoryTransport memory_;
  std::unique_ptr<LoopThread> thread_;
  Listener::Options server_options_;
  std::shared_ptr<EchoService> service_ = std::make_shared<EchoService>();
  std::unique_ptr<Listener> listener_;
  uint16_t port_ = 0;
  std::vector<std::shared_ptr<Channel>> channels_;
};

iovec Piece(Bytes& bytes) { return {bytes.data(), bytes.size()}; }

TEST_P(Network, HandshakeTellsBothSidesWhoTheOtherIs) {
  const auto channel = NewChannel();
  EXPECT_EQ(Call(channel, kEcho, "hello").get().body, "hello");
  OnLoop([&] {
    EXPECT_EQ(channel->peer(), ServerIdentity());
    EXPECT_EQ(service_->peer, ClientIdentity());
    EXPECT_EQ(service_->features, 0b0010U);
    EXPECT_EQ(listener_->connections(), 1U);
  });
}

TEST_P(Network, AClientWithoutClusterLearnsIt) {
  Identity open = ClientIdentity();
  open.cluster_id = kAnyCluster;
  const auto channel = NewChannel(open);
  std::promise<Status> opened;
  loop().Post([&] { channel->Open([&](const Status& status) { opened.set_value(status); }); });
  EXPECT_TRUE(opened.get_future().get().ok());
  OnLoop([&] { EXPECT_EQ(channel->peer().cluster_id, kCluster); });
}

TEST_P(Network, AnotherClusterIsAVersionMismatchOnBothSides) {
  Identity stranger = ClientIdentity();
  stranger.cluster_id = {9, 9};
  const auto channel = NewChannel(stranger);
  const Answer answer = Call(channel, kEcho, "x").get();
  EXPECT_EQ(answer.code, Code::kVersionMismatch);
  EXPECT_FALSE(answer.from_server);
  EXPECT_NE(answer.body.find("belongs to cluster 0909"), std::string::npos) << answer.body;
  while (service_->closed == 0) std::this_thread::yield();
  OnLoop([&] {
    EXPECT_EQ(service_->last_reason, CloseReason::kHandshake);
    EXPECT_EQ(service_->last_status.code(), Code::kVersionMismatch);
    EXPECT_EQ(service_->frames, 0);
  });
}

TEST_P(Network, PingIsAnsweredWithoutTheService) {
  const auto channel = NewChannel();
  EXPECT_EQ(Call(channel, kMethodPing, "are you there").get().body, "are you there");
  OnLoop([&] { EXPECT_EQ(service_->frames, 0); });
}

TEST_P(Network, AFailureOfTheServerCarriesItsCodeAndSentence) {
  const Answer answer = Call(NewChannel(), kFail).get();
  EXPECT_EQ(answer.code, Code::kNotFound);
  EXPECT_TRUE(answer.from_server);
  EXPECT_EQ(answer.body, "no such chunk");
}

TEST_P(Network, ThousandsOfRequestsInFlightEachGetTheirOwnReply) {
  const auto channel = NewChannel();
  std::vector<std::future<Answer>> answers;
  for (int i = 0; i < 3'000; ++i) {
    answers.push_back(Call(channel, kEcho, std::to_string(i) + std::string(i % 200, '.')));
  }
  for (int i = 0; i < 3'000; ++i) {
    const Answer answer = answers[static_cast<size_t>(i)].get();
    ASSERT_EQ(answer.code, Code::kOk);
    ASSERT_EQ(answer.body, std::to_string(i) + std::string(i % 200, '.'));
  }
}

TEST_P(Network, BulkOfEverySizeComesBack) {
  std::mt19937 random(2);
  const auto channel = NewChannel();
  for (const size_t size :
       {size_t{1}, size_t{4096}, size_t{65'537}, size_t{1} << 20, 5'000'001UL}) {
    Bytes bulk = RandomBytes(random, size);
    EXPECT_EQ(Call(channel, kEcho, "b", Piece(bulk)).get().bulk, bulk) << size;
  }
  OnLoop([&] { EXPECT_EQ(service_->released, 5); });
}

TEST_P(Network, AReplysBulkLandsInTheCallersPieces) {
  std::mt19937 random(2);
  Bytes bulk = RandomBytes(random, 1'000'000);
  Bytes first(300'000);
  Bytes second(700'000);
  const Answer answer =
      Call(NewChannel(), kEcho, "", Piece(bulk), 10s, {Piece(first), Piece(second)}).get();
  EXPECT_TRUE(answer.bulk.empty());
  first.insert(first.end(), second.begin(), second.end());
  EXPECT_EQ(first, bulk);
}

TEST_P(Network, ADeadlinePassesAndTheLateReplyIsDropped) {
  const auto channel = NewChannel();
  const auto start = BootClock::now();
  const Answer answer = Call(channel, kNoAnswer, "", {}, 30ms).get();
  EXPECT_EQ(answer.code, Code::kTimedOut);
  EXPECT_FALSE(answer.from_server);
  EXPECT_GE(BootClock::now() - start, 30ms);
  EXPECT_EQ(Call(channel, kEcho, "still usable").get().body, "still usable");
  OnLoop([&] { EXPECT_EQ(channel->requests(), 0U); });
}

TEST_P(Network, ABrokenConnectionFailsWhatIsInFlightAndTheNextCallReconnects) {
  const auto channel = NewChannel();
  auto waiting = Call(channel, kNoAnswer);
  auto hang_up = Call(channel, kHangUp);
  EXPECT_EQ(waiting.get().code, Code::kUnavailable);
  EXPECT_EQ(hang_up.get().code, Code::kUnavailable);
  EXPECT_EQ(Call(channel, kEcho, "again").get().body, "again");
}

TEST_P(Network, WithoutAServerCallsFailAtOnceUntilTheBackoffIsOver) {
  Channel::Options options;
  options.backoff_first = 50ms;
  const auto channel = NewChannel(ClientIdentity(), options);
  OnLoop([&] { listener_.reset(); });
  EXPECT_EQ(Call(channel, kEcho).get().code, Code::kUnavailable);
  OnLoop([&] { OpenListener(port_); });
  const Answer refused = Call(channel, kEcho).get();
  EXPECT_EQ(refused.code, Code::kUnavailable);
  EXPECT_NE(refused.body.find("refused"), std::string::npos) << refused.body;
  std::this_thread::sleep_for(60ms);
  EXPECT_EQ(Call(channel, kEcho, "back").get().body, "back");
}

TEST_P(Network, AClosedChannelFailsEverything) {
  const auto channel = NewChannel();
  auto waiting = Call(channel, kNoAnswer);
  OnLoop([&] { channel->Close(); });
  EXPECT_EQ(waiting.get().code, Code::kUnavailable);
  EXPECT_EQ(Call(channel, kEcho).get().code, Code::kUnavailable);
}

TEST_P(Network, MoreRequestsThanTheLimitAreBusy) {
  Channel::Options options;
  options.requests_max = 2;
  const auto channel = NewChannel(ClientIdentity(), options);
  auto first = Call(channel, kNoAnswer, "", {}, 50ms);
  auto second = Call(channel, kNoAnswer, "", {}, 50ms);
  EXPECT_EQ(Call(channel, kEcho).get().code, Code::kBusy);
  first.get();
  second.get();
}

TEST_P(Network, ABodyBeyondTheLimitIsInvalid) {
  const Answer answer = Call(NewChannel(), kEcho, std::string(kBodyLengthMax + 1, 'x')).get();
  EXPECT_EQ(answer.code, Code::kInvalidArgument);
  EXPECT_FALSE(answer.from_server);
}

INSTANTIATE_TEST_SUITE_P(Transports, Network, testing::Values("tcp", "memory"));

// What needs the kernel's sockets.
class TcpNetwork : public Network {};

// Sends much and reads nothing until told to.
class Flooder : public ConnectionHandler {
 public:
  void OnReady(Connection& connection) override {
    connection.PauseReceive();
    for (uint64_t id = 1; id <= kRequests; ++id) {
      OutBulk out;
      out.pieces = {{bulk.data(), bulk.size()}};
      EXPECT_TRUE(connection.SendRequest(kEcho, id, {}, std::move(out)).ok());
    }
  }
  BulkTarget OnBulk(Connection&, const FrameHeader&, std::span<const uint8_t>) override {
    return BulkTarget::Discard();
  }
  void OnFrame(Connection&, Frame&) override {
    if (++replies == kRequests) done.set_value();
  }
  void OnClosed(Connection&, CloseReason, const Status& status) override {
    EXPECT_EQ(replies, kRequests) << status.message();
  }
  static constexpr uint64_t kRequests = 200;
  Bytes bulk = Bytes(1 << 20, 5);
  uint64_t replies = 0;
  std::promise<void> done;
};

// A client that floods and does not read: the server stops reading from it, so that neither side
// holds more than its marks, and goes on when the client takes its replies.
TEST_P(TcpNetwork, AServerWhoseRepliesAreNotTakenStopsReading) {
  OnLoop([&] {
    listener_.reset();
    server_options_.limits.send_queue_high_bytes = 4 << 20;
    server_options_.limits.send_queue_low_bytes = 1 << 20;
    server_options_.limits.stall_timeout = 60s;
    OpenListener(0);
  });
  const auto flooder = std::make_shared<Flooder>();
  std::shared_ptr<Connection> client;
  Connection::Limits limits;
  limits.stall_timeout = 60s;
  loop().Post([&] {
    transport().Connect(
        loop(), {"127.0.0.1", port_}, 1s, [&](Result<std::unique_ptr<Stream>> stream) {
          client = Connection::Start(loop(), std::move(stream.value()), Connection::Role::kClient,
                                     ClientIdentity(), limits, flooder);
        });
  });
  std::this_thread::sleep_for(200ms);
  OnLoop([&] {
    EXPECT_LT(service_->frames, 60);  // high mark, socket buffers, and what was here already
    EXPECT_GT(service_->frames, 2);
    EXPECT_FALSE(client->CanSend());
    client->ResumeReceive();
  });
  EXPECT_EQ(flooder->done.get_future().wait_for(30s), std::future_status::ready);
  OnLoop([&] { client->Close(); });
}

TEST_P(TcpNetwork, APeerThatNeverSaysHelloOnlyCostsTheDeadline) {
  std::unique_ptr<Stream> silent;
  std::unique_ptr<Acceptor> acceptor;
  OnLoop([&] {
    auto listening =
        transport().Listen(loop(), {"127.0.0.1", 0},
                           [&](std::unique_ptr<Stream> stream) { silent = std::move(stream); });
    acceptor = std::move(listening.value());
    port_ = acceptor->port();
  });
  EXPECT_EQ(Call(NewChannel(), kEcho, "", {}, 50ms).get().code, Code::kTimedOut);
  OnLoop([&] {
    acceptor.reset();
    silent.reset();
  });
}

// The kernel may still read the request's memory when its deadline passes, so the reply has to wait
// for the connection, which is given up after the stall timeout.
TEST_P(TcpNetwork, ADeadlineWaitsForTheKernelToLetGoOfTheRequestsMemory) {
  service_->deaf = true;
  Channel::Options options;
  options.limits.stall_timeout = 300ms;
  const auto channel = NewChannel(ClientIdentity(), options);
  Bytes bulk(kBulkLengthMax, 1);
  const auto start = BootClock::now();
  const Answer answer = Call(channel, kEcho, "", Piece(bulk), 50ms).get();
  EXPECT_EQ(answer.code, Code::kTimedOut);
  EXPECT_GE(BootClock::now() - start, 300ms);
  EXPECT_LT(BootClock::now() - start, 2s);
}

TEST_P(TcpNetwork, ZeroCopySendsMoveTheBytes) {
  Channel::Options options;
  options.limits.zero_copy_min_bytes = 32 << 10;
  const auto channel = NewChannel(ClientIdentity(), options);
  const auto count = [] {
    for (const auto& [name, value] : SumCounters()) {
      if (name == "zero_copy_sends") return value;
    }
    return uint64_t{0};
  };
  const uint64_t before = count();
  std::mt19937 random(4);
  Bytes bulk = RandomBytes(random, 3'000'000);
  std::vector<std::future<Answer>> answers;
  for (int i = 0; i < 20; ++i) answers.push_back(Call(channel, kEcho, "z", Piece(bulk)));
  for (auto& answer : answers) EXPECT_EQ(answer.get().bulk, bulk);
  EXPECT_GE(count() - before, 20 * bulk.size() / Connection::kSendBytesMax);
}

INSTANTIATE_TEST_SUITE_P(Tcp, TcpNetwork, testing::Values("tcp"));

}  // namespace
}  // namespace fs3
