// Storage servers and client together: what a file's user is promised while chains change.
#include <gtest/gtest.h>

#include <thread>

#include "tests/native/server_harness.h"

namespace fs3 {
namespace {

using ServerChain = ServerTest;

TEST_F(ServerChain, AcknowledgedBytesAreOnEveryReplica) {
  StartNodes(3);
  SetChain({0, 1, 2});
  const auto bytes = RandomBytes(5 * kTestChunk + 777, 1);
  const uint32_t handle = Open();
  ASSERT_EQ(Write(handle, 0, bytes), Code::kOk);
  for (size_t node = 0; node < 3; ++node) {
    EXPECT_EQ(ReadFrom(node, bytes.size()), bytes) << "replica " << node;
  }
}

TEST_F(ServerChain, SmallUnalignedOverwritesAndHolesReadBack) {
  StartNodes(2);
  SetChain({0, 1});
  const uint32_t handle = Open();
  std::vector<uint8_t> model(3 * kTestChunk, 0);
  ASSERT_EQ(Write(handle, model.size() - 1, {0}), Code::kOk);
  std::mt19937 random(3);
  for (int i = 0; i < 100; ++i) {
    const size_t size = 1 + random() % 9000;
    const size_t offset = kTestChunk / 2 + random() % (model.size() - kTestChunk - size);
    const auto bytes = RandomBytes(size, random());
    std::copy(bytes.begin(), bytes.end(), model.begin() + static_cast<ptrdiff_t>(offset));
    ASSERT_EQ(Write(handle, offset, bytes), Code::kOk);
  }
  std::vector<uint8_t> read;
  ASSERT_EQ(Read(handle, 0, model.size(), &read), Code::kOk);
  EXPECT_EQ(read, model);
  EXPECT_EQ(ReadFrom(0, model.size()), model);
}

TEST_F(ServerChain, ManyRequestsInOneCallAreBatchedAndLandInTheirPlaces) {
  StartNodes(1);
  SetChain({0});
  const auto bytes = RandomBytes(32 * kTestChunk, 4);
  const uint32_t handle = Open();
  ASSERT_EQ(Write(handle, 0, bytes), Code::kOk);
  const uint64_t frames_before = ClientCounter("frames");
  std::vector<IoRequest> requests;
  for (uint64_t i = 0; i < 2000; ++i) {
    requests.push_back({handle, 0, (i * 37 % 500) * 4096 + i % 100, 512, i * 512});
  }
  std::vector<uint8_t> into(requests.size() * 512);
  ASSERT_EQ(Wait(client_->SubmitRead(requests, into, kTestTimeout, false)), Code::kOk);
  for (const IoRequest& request : requests) {
    ASSERT_EQ(std::memcmp(into.data() + request.buffer_offset, bytes.data() + request.file_offset,
                          request.length),
              0);
  }
  EXPECT_LE(ClientCounter("frames") - frames_before, 2100U / 512 + 1);
}

TEST_F(ServerChain, AReaderEndsWhereTheFileEnds) {
  StartNodes(1);
  SetChain({0});
  const uint32_t handle = Open();
  ASSERT_EQ(Write(handle, 0, RandomBytes(1000, 5)), Code::kOk);
  std::vector<uint8_t> read;
  ASSERT_EQ(Read(handle, 900, 4096, &read), Code::kOk);
  EXPECT_EQ(read.size(), 100U);
  ASSERT_EQ(Read(handle, 5000, 4096, &read), Code::kOk);
  EXPECT_EQ(read.size(), 0U);
}

TEST_F(ServerChain, ACutHidesWhatWasBehindItAndRefusesOldHandles) {
  StartNodes(2);
  SetChain({0, 1});
  const auto bytes = RandomBytes(4 * kTestChunk, 6);
  const uint32_t old_handle = Open();
  ASSERT_EQ(Write(old_handle, 0, bytes), Code::kOk);
  const uint64_t cut = kTestChunk + 100;
  const uint32_t handle = Open(cut, 1);
  uint64_t touched = 0;
  ASSERT_EQ(Wait(client_->SubmitTruncate(handle, cut, 1, kTestTimeout, false), &touched),
            Code::kOk);
  EXPECT_EQ(touched, 3U);
  std::vector<uint8_t> read;
  for (uint64_t chunk = 1; chunk < 4; ++chunk) {
    EXPECT_EQ(Write(old_handle, chunk * kTestChunk, {1, 2, 3}), Code::kStaleHandle);
    EXPECT_EQ(Read(old_handle, chunk * kTestChunk, 10, &read), Code::kStaleHandle);
  }
  ASSERT_EQ(Write(handle, 3 * kTestChunk, {9}), Code::kOk);
  ASSERT_EQ(Read(handle, 0, 3 * kTestChunk + 1, &read), Code::kOk);
  std::vector<uint8_t> expected(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(cut));
  expected.resize(3 * kTestChunk, 0);
  expected.push_back(9);
  EXPECT_EQ(read, expected);
  EXPECT_EQ(ReadFrom(1, 10).size(), 10U);
}

// The cut is known to the reader and the writer, but has reached no chunk yet.
TEST_F(ServerChain, ACutUnderWayIsAppliedByWhoeverComesFirst) {
  StartNodes(2);
  SetChain({0, 1});
  const uint32_t old_handle = Open();
  ASSERT_EQ(Write(old_handle, 0, RandomBytes(kTestChunk, 7)), Code::kOk);
  const uint32_t handle = Open(10, 1);
  client_->Find(handle)->OnWritten(kTestChunk);  // as if it had grown again by another chunk
  std::vector<uint8_t> read;
  ASSERT_EQ(Read(handle, 0, 100, &read), Code::kOk);
  EXPECT_EQ(std::count(read.begin() + 10, read.end(), 0), 90);
  ASSERT_EQ(Write(handle, 50, {1}), Code::kOk);
  ASSERT_EQ(Read(handle, 0, 100, &read), Code::kOk);
  EXPECT_EQ(std::count(read.begin() + 10, read.end(), 0), 89);
  EXPECT_EQ(read[50], 1);
}

TEST_F(ServerChain, TheLastByteIsFoundAndARemovedFileIsGone) {
  StartNodes(2);
  SetChain({0, 1});
  const uint32_t handle = Open();
  ASSERT_EQ(Write(handle, 0, RandomBytes(300 * kTestChunk, 8)), Code::kOk);
  ASSERT_EQ(Write(handle, 400 * kTestChunk, {1, 2, 3}), Code::kOk);
  uint64_t length = 0;
  ASSERT_EQ(Wait(client_->SubmitQueryLast(handle, kTestTimeout, false), &length), Code::kOk);
  EXPECT_EQ(length, 400U * kTestChunk + 3);
  uint64_t removed = 0;
  ASSERT_EQ(Wait(client_->SubmitRemove(handle, 1, kTestTimeout, false), &removed), Code::kOk);
  EXPECT_EQ(removed, 301U);
  ASSERT_EQ(Wait(client_->SubmitQueryLast(handle, kTestTimeout, false), &length), Code::kOk);
  EXPECT_EQ(length, 0U);
  EXPECT_EQ(Write(handle, 0, {1}), Code::kStaleHandle) << "a late write must not bring it back";
}

TEST_F(ServerChain, FlushReachesEveryReplica) {
  StartNodes(2);
  SetChain({0, 1});
  const uint32_t handle = Open();
  ASSERT_EQ(Write(handle, 0, RandomBytes(kTestChunk, 9)), Code::kOk);
  EXPECT_EQ(Wait(client_->SubmitFlush(handle, kTestTimeout, false)), Code::kOk);
}

TEST_F(ServerChain, WritesWaitForTheChainThatReplacesADeadMember) {
  StartNodes(2);
  SetChain({0, 1});
  const uint32_t handle = Open();
  const auto bytes = RandomBytes(8 * kTestChunk, 10);
  ASSERT_EQ(Write(handle, 0, bytes), Code::kOk);
  StopNode(1);
  const auto more = RandomBytes(2 * kTestChunk, 11);
  const IoRequest request{handle, 0, bytes.size(), more.size(), 0};
  const auto ticket = client_->SubmitWrite({&request, 1}, more, kTestTimeout, false);
  EXPECT_FALSE(ticket.value()->Wait(200ms)) << "not acknowledged while a member is missing";
  EXPECT_TRUE(WaitForEvent(0, ServerEvent::Kind::kPeerRefused, 5s));
  SetChain({0});
  EXPECT_EQ(Wait(ticket), Code::kOk);
  std::vector<uint8_t> read;
  ASSERT_EQ(Read(handle, bytes.size(), more.size(), &read), Code::kOk);
  EXPECT_EQ(read, more);
}

TEST_F(ServerChain, ADeadHeadLosesNothing) {
  StartNodes(2);
  SetChain({0, 1});
  const uint32_t handle = Open();
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> written = 0;
  std::thread writer([&] {
    for (uint64_t i = 0; !stop; ++i) {
      ASSERT_EQ(Write(handle, i * 1000, RandomBytes(1000, static_cast<uint32_t>(i))), Code::kOk);
      written = i + 1;
    }
  });
  while (written < 50) std::this_thread::sleep_for(1ms);
  StopNode(0);
  std::this_thread::sleep_for(50ms);
  SetChain({1});
  const uint64_t at_failure = written;
  while (written < at_failure + 50) std::this_thread::sleep_for(1ms);
  stop = true;
  writer.join();
  for (uint64_t i = 0; i < written; ++i) {
    std::vector<uint8_t> read;
    ASSERT_EQ(Read(handle, i * 1000, 1000, &read), Code::kOk);
    ASSERT_EQ(read, RandomBytes(1000, static_cast<uint32_t>(i))) << i;
  }
  EXPECT_GT(ClientCounter("retried_ops"), 0U);
}

TEST_F(ServerChain, ReadsGoOnAtTheOtherReplica) {
  StartNodes(2);
  SetChain({0, 1});
  const auto bytes = RandomBytes(8 * kTestChunk, 12);
  const uint32_t handle = Open();
  ASSERT_EQ(Write(handle, 0, bytes), Code::kOk);
  StopNode(0);
  for (int i = 0; i < 10; ++i) {
    std::vector<uint8_t> read;
    ASSERT_EQ(Read(handle, 0, bytes.size(), &read, 2s), Code::kOk);
    ASSERT_EQ(read, bytes);
  }
}

TEST_F(ServerChain, AReturningTargetGetsEverythingWhileWritesGoOn) {
  StartNodes(2);
  SetChain({0, 1});
  const uint32_t handle = Open();
  ASSERT_EQ(Write(handle, 0, RandomBytes(20 * kTestChunk, 13)), Code::kOk);
  StopNode(1);
  SetChain({0});
  // What the absent one misses: an overwrite, a removal, and a longer file.
  ASSERT_EQ(Write(handle, kTestChunk / 2, RandomBytes(kTestChunk, 14)), Code::kOk);
  ASSERT_EQ(Wait(client_->SubmitTruncate(handle, 10 * kTestChunk, 1, kTestTimeout, false)),
            Code::kOk);
  const uint32_t cut_handle = Open(10 * kTestChunk, 1);
  StartNode(1);
  SetChain({0}, 1);
  std::vector<uint8_t> model;
  ASSERT_EQ(Read(cut_handle, 0, 10 * kTestChunk, &model), Code::kOk);
  for (uint32_t i = 0; i < 40; ++i) {
    const auto bytes = RandomBytes(5000, 100 + i);
    const size_t offset = i * 16000;
    ASSERT_EQ(Write(cut_handle, offset, bytes), Code::kOk);
    std::copy(bytes.begin(), bytes.end(), model.begin() + static_cast<ptrdiff_t>(offset));
  }
  ASSERT_TRUE(WaitForEvent(1, ServerEvent::Kind::kSyncFinished, 20s));
  SetChain({0, 1});
  ASSERT_EQ(Write(cut_handle, 0, {7}), Code::kOk);
  model[0] = 7;
  StopNode(0);
  SetChain({1});
  std::vector<uint8_t> read;
  ASSERT_EQ(Read(cut_handle, 0, model.size(), &read), Code::kOk);
  EXPECT_EQ(read, model);
  uint64_t length = 0;
  ASSERT_EQ(Wait(client_->SubmitQueryLast(cut_handle, kTestTimeout, false), &length), Code::kOk);
  EXPECT_EQ(length, model.size());
}

TEST_F(ServerChain, EverythingAcknowledgedIsThereAfterARestart) {
  StartNodes(1);
  SetChain({0});
  const auto bytes = RandomBytes(10 * kTestChunk + 5, 15);
  const uint32_t handle = Open();
  ASSERT_EQ(Write(handle, 0, bytes), Code::kOk);
  StopNode(0);
  StartNode(0);
  SetChain({0});
  std::vector<uint8_t> read;
  ASSERT_EQ(Read(handle, 0, bytes.size(), &read), Code::kOk);
  EXPECT_EQ(read, bytes);
  ASSERT_EQ(Write(handle, 3, {1}), Code::kOk);
}

TEST_F(ServerChain, WithoutRoutingACallEndsAtItsDeadline) {
  StartNodes(1);
  const uint32_t handle = Open();
  EXPECT_EQ(Write(handle, 0, {1}, 100ms), Code::kTimedOut);
  SetChain({0});
  ASSERT_TRUE(nodes_[0].server->RemoveTarget(nodes_[0].target).ok());
  EXPECT_EQ(Write(handle, 0, {1}, 200ms), Code::kTimedOut);
  std::vector<uint8_t> read;
  const uint32_t reader = Open(10);
  EXPECT_EQ(Read(reader, 0, 10, &read, 200ms), Code::kTimedOut);
}

TEST_F(ServerChain, ClosingTheClientEndsWhatIsUnderWay) {
  StartNodes(1);  // no chain: nothing can be served
  const uint32_t handle = Open(1000);
  std::vector<uint8_t> bytes(1000);
  const IoRequest request{handle, 0, 0, bytes.size(), 0};
  const auto ticket = client_->SubmitRead({&request, 1}, bytes, kTestTimeout, true);
  client_->Close();
  EXPECT_EQ(Wait(ticket), Code::kUnavailable);
  EXPECT_EQ(client_->completions().Take(0ns).size(), 1U);
}

TEST_F(ServerChain, ADirectoryIsServedAsWhatItIsAndByOneServer) {
  StartNodes(1);
  TargetStoreOptions other = StoreOptions(0);
  other.identity.generation = 8;
  StorageServer::Options options;
  options.self = {kTestCluster, PeerKind::kStorage, 9, 77, 0};
  auto second = StorageServer::Start(options);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second.value()->AddTarget(other, 0).code(), Code::kConflict);
  EXPECT_EQ(second.value()->AddTarget(StoreOptions(0), 0).code(), Code::kBusy);
  TargetStoreOptions missing = StoreOptions(5);
  missing.create = false;
  EXPECT_EQ(second.value()->AddTarget(missing, 0).code(), Code::kNotFound);
}

TEST_F(ServerChain, SeveralShardsServeTheirTargets) {
  StorageServer::Options options;
  options.self = {kTestCluster, PeerKind::kStorage, 1, 1, 0};
  options.ports = {0, 0};
  auto server = StorageServer::Start(options);
  ASSERT_TRUE(server.ok());
  std::vector<ChainRoute> routes;
  for (uint32_t i = 0; i < 2; ++i) {
    TargetStoreOptions store = StoreOptions(i);
    store.identity.id = uint64_t{1} << 32 | i;
    ASSERT_TRUE(server.value()->AddTarget(store, i).ok());
    const Endpoint at = server.value()->EndpointOf(store.identity.id).value();
    EXPECT_EQ(at, server.value()->endpoints()[i]);
    ASSERT_TRUE(server.value()
                    ->SetChain(store.identity.id, {i, 1, {{store.identity.id, 7, false, at}}})
                    .ok());
    routes.push_back({i, 1, {{store.identity.id, at}}});
  }
  ASSERT_TRUE(client_->SetRouting(routes).ok());
  const auto bytes = RandomBytes(10 * kTestChunk, 16);
  const uint32_t handle = client_->OpenFile(kTestInode, kTestChunk, {0, 1}, 0, 0).value();
  ASSERT_EQ(Write(handle, 0, bytes), Code::kOk);
  std::vector<uint8_t> read;
  ASSERT_EQ(Read(handle, 0, bytes.size(), &read), Code::kOk);
  EXPECT_EQ(read, bytes);
  for (const TargetSpace& space : server.value()->GetSpace()) EXPECT_EQ(space.chunks, 5U);
}

}  // namespace
}  // namespace fs3
