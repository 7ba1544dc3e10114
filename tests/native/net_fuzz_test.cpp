// Hostile bytes: random, mutated and cut frames must be refused without reading or writing outside
// any buffer (the sanitizers watch), without unbounded memory, and without harm to other peers.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <future>
#include <random>

#include "frame_bytes.h"
#include "fs3/native/frame/hello.h"
#include "fs3/native/frame/little_endian.h"
#include "fs3/native/net/channel.h"
#include "fs3/native/net/counters.h"
#include "fs3/native/net/listener.h"

namespace fs3 {
namespace {

using namespace std::chrono_literals;
using testing_frames::Bytes;
using testing_frames::MakeFrame;
using testing_frames::RandomBytes;

constexpr ClusterId kCluster{4, 2};

Bytes ClientHello() {
  const Hello hello{kProtocolMin, kProtocolMax, {kCluster, PeerKind::kClient, 0, 1, 0}, {}};
  return MakeFrame(kMethodHello, 0, EncodeHello(hello), {});
}

// A stream of valid frames.
Bytes SomeFrames(std::mt19937& random) {
  Bytes stream;
  for (int i = 0; i < 4; ++i) {
    const Bytes body = RandomBytes(random, random() % 300);
    const Bytes bulk = random() % 2 == 0 ? Bytes() : RandomBytes(random, random() % 20'000);
    const Bytes frame = MakeFrame(0x0400, random(), body, bulk);
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  return stream;
}

// Makes the header of the first frame lie about anything, but with a CRC that is right.
void LieConsistently(std::mt19937& random, Bytes& stream) {
  if (stream.size() < kFrameHeaderSize) return;
  const size_t at = 4 + random() % (kHeaderCrcPrefix - 4);
  stream[at] = static_cast<uint8_t>(random());
  StoreLittleEndian(stream.data() + frame_offset::kHeaderCrc,
                    Crc32c(stream.data(), kHeaderCrcPrefix));
}

void Mutate(std::mt19937& random, Bytes& stream) {
  if (stream.empty()) return;
  switch (random() % 6) {
    case 0:
      stream = RandomBytes(random, 1 + random() % 2'000);
      break;
    case 1:
      stream[random() % stream.size()] ^= static_cast<uint8_t>(1U << random() % 8);
      break;
    case 2:
      stream.resize(1 + random() % stream.size());
      break;
    case 3:
      stream.erase(stream.begin() + static_cast<ptrdiff_t>(random() % stream.size()));
      break;
    case 4:
      stream.insert(stream.begin() + static_cast<ptrdiff_t>(random() % stream.size()),
                    static_cast<uint8_t>(random()));
      break;
    default:
      LieConsistently(random, stream);
  }
}

// Takes everything, in places of every kind.
class AnySink : public FrameSink {
 public:
  explicit AnySink(std::mt19937& random) : random_(random) {}

  BulkTarget OnBulk(const FrameHeader& header, std::span<const uint8_t>) override {
    // Lengths are bounded by the header check, whatever the peer claims.
    EXPECT_LE(header.bulk_length, kBulkLengthMax);
    if (header.bulk_length > (1U << 20) || random_() % 3 == 0) return BulkTarget::Discard();
    if (random_() % 2 == 0) return BulkTarget::Into(Buffer::Allocate(header.bulk_length));
    exact_ = std::make_unique<uint8_t[]>(header.bulk_length);
    const size_t cut = random_() % (header.bulk_length + size_t{1});
    BulkTarget target =
        BulkTarget::Into({{exact_.get(), cut}, {exact_.get() + cut, header.bulk_length - cut}});
    target.verify = random_() % 2 == 0;
    return target;
  }
  void OnFrame(Frame& frame) override {
    EXPECT_EQ(frame.body.size(), frame.header.body_length);
    ++frames;
  }

  int frames = 0;

 private:
  std::mt19937& random_;
  std::unique_ptr<uint8_t[]> exact_;
};

TEST(Fuzz, TheReceiverSurvivesMutatedStreams) {
  std::mt19937 random(20240607);
  int refused = 0;
  int frames = 0;
  for (int round = 0; round < 3'000; ++round) {
    Bytes stream = SomeFrames(random);
    for (uint32_t i = random() % 3; i > 0; --i) Mutate(random, stream);
    AnySink sink(random);
    Receiver receiver(sink);
    std::span<const uint8_t> left = stream;
    Malformed malformed = Malformed::kNone;
    while (!left.empty() && malformed == Malformed::kNone) {
      const size_t step = 1 + random() % (random() % 2 == 0 ? 100 : 30'000);
      size_t given = 0;
      for (const iovec& target : receiver.Targets()) {
        const size_t size = std::min({target.iov_len, left.size() - given, step - given});
        std::memcpy(target.iov_base, left.data() + given, size);
        given += size;
      }
      ASSERT_GT(given, 0U);
      left = left.subspan(given);
      malformed = receiver.Advance(given);
    }
    if (malformed != Malformed::kNone) ++refused;
    frames += sink.frames;
  }
  EXPECT_GT(refused, 1'000);
  EXPECT_GT(frames, 3'000);
}

TEST(Fuzz, TheHelloDecoderSurvivesAnything) {
  std::mt19937 random(9);
  const Bytes good(EncodeHello({1, 1, {kCluster, PeerKind::kMeta, 1, 2, 3}, "a reason"}));
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes = good;
    Mutate(random, bytes);
    const auto decoded = DecodeHello(bytes);
    EXPECT_TRUE(!decoded.ok() || decoded.value().reason.size() <= kHelloReasonMax);
  }
}

class Echo : public ConnectionHandler {
 public:
  void OnFrame(Connection& connection, Frame& frame) override {
    (void)connection.SendReply(frame.header, Code::kOk, frame.body);
  }
  void OnClosed(Connection&, CloseReason, const Status&) override {}
};

// A peer that writes `bytes` to the port, reads a little and leaves.
void Attack(uint16_t port, const Bytes& bytes) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  (void)send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  pollfd waiting{fd, POLLIN, 0};
  poll(&waiting, 1, 1);
  char answer[256];
  (void)recv(fd, answer, sizeof(answer), MSG_DONTWAIT);
  close(fd);
}

TEST(Fuzz, AServerUnderAttackServesItsOtherPeers) {
  auto thread = std::move(LoopThread::Start({}).value());
  Loop& loop = thread->loop();
  const Identity server{kCluster, PeerKind::kMeta, 1, 2, 0};
  std::unique_ptr<Listener> listener;
  std::shared_ptr<Channel> channel;
  thread->RunAndWait([&] {
    Listener::Options options;
    options.limits.stall_timeout = 50ms;
    listener = std::move(Listener::Open(loop, TcpTransport(), {"127.0.0.1", 0}, server, options,
                                        std::make_shared<Echo>())
                             .value());
    channel = Channel::Create(loop, TcpTransport(), {"127.0.0.1", listener->port()},
                              {kCluster, PeerKind::kClient, 0, 3, 0}, {});
  });
  std::mt19937 random(77);
  for (int round = 0; round < 150; ++round) {
    Bytes stream = random() % 4 == 0 ? Bytes() : ClientHello();
    Bytes frames = SomeFrames(random);
    Mutate(random, frames);
    stream.insert(stream.end(), frames.begin(), frames.end());
    if (random() % 4 == 0) Mutate(random, stream);
    Attack(listener->port(), stream);

    std::promise<Code> code;
    loop.Post([&] {
      Request request;
      request.method = 0x0400;
      request.timeout = 10s;
      request.on_reply = [&](Reply& reply) { code.set_value(reply.code); };
      channel->Call(std::move(request));
    });
    ASSERT_EQ(code.get_future().get(), Code::kOk);
  }
  // Everything the attackers left behind is gone, whether they were refused, cut off or stalled.
  const auto connections = [&] {
    size_t count = 0;
    thread->RunAndWait([&] { count = listener->connections(); });
    return count;
  };
  const auto deadline = BootClock::now() + 10s;
  while (connections() > 1 && BootClock::now() < deadline) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(connections(), 1U);
  uint64_t malformed = 0;
  for (const auto& [name, value] : SumCounters()) {
    if (name.starts_with("malformed_")) malformed += value;
  }
  EXPECT_GT(malformed, 20U);
  thread->RunAndWait([&] {
    channel->Close();
    listener.reset();
  });
}

}  // namespace
}  // namespace fs3
