// The contract of a transport, held by tcp and by its fake.
#include <gtest/gtest.h>

#include <future>
#include <random>

#include "frame_bytes.h"
#include "fs3/native/net/memory_transport.h"
#include "fs3/native/net/transport.h"

namespace fs3 {
namespace {

using namespace std::chrono_literals;
using testing_frames::Bytes;
using testing_frames::RandomBytes;

class TransportContract : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto started = LoopThread::Start({});
    ASSERT_TRUE(started.ok());
    thread_ = std::move(started.value());
  }

  Loop& loop() { return thread_->loop(); }
  Transport& transport() {
    return std::string(GetParam()) == "tcp" ? TcpTransport() : static_cast<Transport&>(memory_);
  }

  // Both ends of a connection, on the loop.
  void Join() {
    std::promise<void> done;
    loop().Post([&] {
      auto acceptor =
          transport().Listen(loop(), {"127.0.0.1", 0}, [&](std::unique_ptr<Stream> stream) {
            server_ = std::move(stream);
            if (client_ != nullptr) done.set_value();
          });
      ASSERT_TRUE(acceptor.ok()) << acceptor.status().message();
      acceptor_ = std::move(acceptor.value());
      transport().Connect(loop(), {"127.0.0.1", acceptor_->port()}, 1s,
                          [&](Result<std::unique_ptr<Stream>> stream) {
                            ASSERT_TRUE(stream.ok()) << stream.status().message();
                            client_ = std::move(stream.value());
                            if (server_ != nullptr) done.set_value();
                          });
    });
    done.get_future().wait();
  }

  void TearDown() override {
    thread_->RunAndWait([&] {
      acceptor_.reset();
      if (client_ != nullptr) client_->Shutdown();
      if (server_ != nullptr) server_->Shutdown();
    });
    thread_->RunAndWait([&] {
      client_.reset();
      server_.reset();
    });
    thread_.reset();
  }

  MemoryTransport memory_;
  std::unique_ptr<LoopThread> thread_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<Stream> client_;
  std::unique_ptr<Stream> server_;
};

// Sends and receives everything, in as many calls as the stream wants.
struct Pump {
  Stream& stream;
  Bytes& bytes;
  std::promise<int32_t> done = {};
  size_t position = 0;
  iovec piece = {};

  void SendAll() {
    piece = {bytes.data() + position, bytes.size() - position};
    stream.Send(&piece, 1, [this](int32_t sent) {
      if (sent <= 0) return done.set_value(sent);
      position += static_cast<size_t>(sent);
      if (position == bytes.size()) return done.set_value(1);
      SendAll();
    });
  }
  void ReceiveAll() {
    piece = {bytes.data() + position, bytes.size() - position};
    stream.Receive(&piece, 1, [this](int32_t received) {
      if (received <= 0) return done.set_value(received);
      position += static_cast<size_t>(received);
      if (position == bytes.size()) return done.set_value(1);
      ReceiveAll();
    });
  }
};

TEST_P(TransportContract, BytesArriveInOrderInBothDirections) {
  Join();
  std::mt19937 random(1);
  Bytes forth = RandomBytes(random, 5'000'000);
  Bytes back = RandomBytes(random, 3'000'000);
  Bytes forth_copy(forth.size());
  Bytes back_copy(back.size());
  Pump send_forth{*client_, forth};
  Pump send_back{*server_, back};
  Pump receive_forth{*server_, forth_copy};
  Pump receive_back{*client_, back_copy};
  loop().Post([&] {
    receive_forth.ReceiveAll();
    receive_back.ReceiveAll();
    send_forth.SendAll();
    send_back.SendAll();
  });
  for (Pump* pump : {&send_forth, &send_back, &receive_forth, &receive_back}) {
    EXPECT_EQ(pump->done.get_future().get(), 1);
  }
  EXPECT_EQ(forth_copy, forth);
  EXPECT_EQ(back_copy, back);
}

TEST_P(TransportContract, TheEndOfThePeerIsAZeroByteReceive) {
  Join();
  std::promise<int32_t> result;
  char byte;
  iovec piece{&byte, 1};
  loop().Post([&] {
    server_->Receive(&piece, 1, [&](int32_t received) { result.set_value(received); });
    client_->Shutdown();
  });
  EXPECT_EQ(result.get_future().get(), 0);
}

TEST_P(TransportContract, ShutdownEndsWhatIsOutstanding) {
  Join();
  std::promise<int32_t> result;
  char byte;
  iovec piece{&byte, 1};
  loop().Post([&] {
    client_->Receive(&piece, 1, [&](int32_t received) { result.set_value(received); });
    loop().StartTimer(10ms, [&] { client_->Shutdown(); });
  });
  EXPECT_LE(result.get_future().get(), 0);
}

TEST_P(TransportContract, APortThatIsTakenIsUnavailable) {
  Join();
  thread_->RunAndWait([&] {
    const auto second = transport().Listen(loop(), {"127.0.0.1", acceptor_->port()},
                                           [](std::unique_ptr<Stream>) {});
    EXPECT_EQ(second.status().code(), Code::kUnavailable);
    EXPECT_NE(second.status().message().find("in use"), std::string::npos);
  });
}

TEST_P(TransportContract, NobodyListeningIsUnavailableAtOnce) {
  Join();
  std::promise<Status> result;
  loop().Post([&] {
    const uint16_t port = acceptor_->port();
    acceptor_.reset();
    transport().Connect(
        loop(), {"127.0.0.1", port}, 10s,
        [&](Result<std::unique_ptr<Stream>> stream) { result.set_value(stream.status()); });
  });
  const Status status = result.get_future().get();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("refused"), std::string::npos) << status.message();
}

INSTANTIATE_TEST_SUITE_P(Transports, TransportContract, testing::Values("tcp", "memory"));

TEST(Tcp, AHostThatIsNotNumericIsRefusedWithoutDns) {
  auto thread = std::move(LoopThread::Start({}).value());
  std::promise<Status> result;
  thread->loop().Post([&] {
    TcpTransport().Connect(
        thread->loop(), {"localhost", 1}, 1s,
        [&](Result<std::unique_ptr<Stream>> stream) { result.set_value(stream.status()); });
  });
  EXPECT_EQ(result.get_future().get().code(), Code::kInvalidArgument);
}

TEST(Endpoint, ResolvesNamesAndSaysWhatItCannot) {
  const auto resolved = ResolveEndpoint({"localhost", 7});
  ASSERT_TRUE(resolved.ok());
  EXPECT_TRUE(resolved.value().host == "127.0.0.1" || resolved.value().host == "::1");
  EXPECT_EQ(ResolveEndpoint({"127.0.0.1", 9}).value().Text(), "127.0.0.1:9");
  EXPECT_EQ((Endpoint{"::1", 9}.Text()), "[::1]:9");
  EXPECT_EQ(ResolveEndpoint({"no-such-host.invalid", 7}).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace fs3
