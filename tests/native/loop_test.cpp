#include "fs3/native/loop/loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <future>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace fs3 {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<LoopThread> StartLoop() {
  auto started = LoopThread::Start({});
  EXPECT_TRUE(started.ok()) << started.status().message();
  return std::move(started.value());
}

TEST(Loop, PostRunsEveryTaskInOrderOfOneThread) {
  const auto thread = StartLoop();
  constexpr int kTasks = 10'000;
  std::vector<int> seen;
  std::promise<void> done;
  for (int i = 0; i < kTasks; ++i) {
    ASSERT_TRUE(thread->loop().Post([&, i] {
      EXPECT_TRUE(thread->loop().InLoopThread());
      seen.push_back(i);
      if (i == kTasks - 1) done.set_value();
    }));
  }
  done.get_future().wait();
  ASSERT_EQ(seen.size(), size_t{kTasks});
  for (int i = 0; i < kTasks; ++i) ASSERT_EQ(seen[static_cast<size_t>(i)], i);
}

TEST(Loop, ManyThreadsPostWithoutLoss) {
  const auto thread = StartLoop();
  constexpr int kThreads = 4;
  constexpr int kTasks = 5'000;
  int count = 0;  // only touched by the loop
  std::promise<void> done;
  std::vector<std::thread> posters;
  for (int t = 0; t < kThreads; ++t) {
    posters.emplace_back([&] {
      for (int i = 0; i < kTasks; ++i) {
        thread->loop().Post([&] {
          if (++count == kThreads * kTasks) done.set_value();
        });
      }
    });
  }
  EXPECT_EQ(done.get_future().wait_for(30s), std::future_status::ready);
  for (auto& poster : posters) poster.join();
}

TEST(Loop, PostAfterTheEndIsRefused) {
  auto made = Loop::Create({});
  ASSERT_TRUE(made.ok());
  Loop& loop = *made.value();
  int ran = 0;
  ASSERT_TRUE(loop.Post([&] { ++ran; }));
  std::thread runner([&] { loop.Run(); });
  loop.Stop();
  runner.join();
  EXPECT_EQ(ran, 1);
  EXPECT_FALSE(loop.Post([&] { ++ran; }));
  EXPECT_EQ(ran, 1);
}

TEST(Loop, DeferredTasksRunAtTheEndOfTheSameTurn) {
  const auto thread = StartLoop();
  std::string order;
  thread->RunAndWait([&] {
    thread->loop().Defer([&] { order += "c"; });
    thread->loop().Post([&] { order += "d"; });
    order += "a";
  });
  std::promise<void> done;
  thread->loop().Post([&] { done.set_value(); });
  done.get_future().wait();
  EXPECT_EQ(order, "acd");
}

TEST(Loop, TimersFireInOrderAndCancelledOnesDoNot) {
  const auto thread = StartLoop();
  std::string order;
  std::promise<void> done;
  const auto start = BootClock::now();
  thread->RunAndWait([&] {
    Loop& loop = thread->loop();
    loop.StartTimer(30ms, [&] {
      order += "c";
      done.set_value();
    });
    loop.StartTimer(10ms, [&] { order += "a"; });
    const TimerId cancelled = loop.StartTimer(15ms, [&] { order += "x"; });
    loop.StartTimer(20ms, [&] { order += "b"; });
    EXPECT_TRUE(loop.CancelTimer(cancelled));
    EXPECT_FALSE(loop.CancelTimer(cancelled));
    EXPECT_FALSE(loop.CancelTimer(0));
  });
  done.get_future().wait();
  EXPECT_EQ(order, "abc");
  EXPECT_GE(BootClock::now() - start, 29ms);  // a turn's time is older than `start`
}

TEST(Loop, FileOperations) {
  const auto thread = StartLoop();
  char path[] = "/tmp/fs3-loop-test-XXXXXX";
  const int fd = mkstemp(path);
  ASSERT_GE(fd, 0);
  unlink(path);
  const std::string text = "granule";
  std::array<char, 16> back{};
  std::array<char, 4> first{};
  std::array<char, 4> second{};
  const std::array<iovec, 2> scatter{iovec{first.data(), 4}, iovec{second.data(), 4}};
  std::vector<int32_t> results;
  std::promise<void> done;
  Loop& loop = thread->loop();
  loop.Post([&] {
    loop.Allocate(fd, 0, 0, 8192, [&](int32_t allocated) {
      results.push_back(allocated);
      loop.Write(fd, text.data(), text.size(), 4096, [&](int32_t written) {
        results.push_back(written);
        loop.Sync(fd, true, [&](int32_t synced) {
          results.push_back(synced);
          loop.Read(fd, back.data(), text.size(), 4096, [&](int32_t read) {
            results.push_back(read);
            loop.ReadVector(fd, scatter.data(), 2, 4096, [&](int32_t scattered) {
              results.push_back(scattered);
              done.set_value();
            });
          });
        });
      });
    });
  });
  done.get_future().wait();
  EXPECT_EQ(results, (std::vector<int32_t>{0, 7, 0, 7, 8}));
  EXPECT_EQ(std::string(back.data()), text);
  EXPECT_EQ(std::string(first.data(), 4) + std::string(second.data(), 3), text);
  EXPECT_EQ(lseek(fd, 0, SEEK_END), 8192);
  close(fd);
}

TEST(Loop, ErrorsAreNegativeErrnos) {
  const auto thread = StartLoop();
  std::promise<int32_t> result;
  char byte;
  thread->loop().Post(
      [&] { thread->loop().Read(-1, &byte, 1, 0, [&](int32_t r) { result.set_value(r); }); });
  EXPECT_EQ(result.get_future().get(), -EBADF);
}

TEST(Loop, MoreOperationsThanTheQueueHolds) {
  auto started = LoopThread::Start({.queue_depth = 8, .name = "tiny"});
  ASSERT_TRUE(started.ok());
  const auto thread = std::move(started.value());
  const int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  constexpr int kReads = 1'000;
  std::vector<char> bytes(kReads, 'x');
  int completed = 0;
  std::promise<void> done;
  thread->loop().Post([&] {
    for (int i = 0; i < kReads; ++i) {
      thread->loop().Read(fd, &bytes[static_cast<size_t>(i)], 1, 0, [&](int32_t r) {
        EXPECT_EQ(r, 1);
        if (++completed == kReads) done.set_value();
      });
    }
  });
  EXPECT_EQ(done.get_future().wait_for(10s), std::future_status::ready);
  EXPECT_EQ(bytes, std::vector<char>(kReads, 0));
  close(fd);
}

TEST(Loop, CancelCompletesOnlyWhatItNames) {
  const auto thread = StartLoop();
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  char byte;
  iovec piece{&byte, 1};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  std::promise<int32_t> result;
  OperationId id = 0;
  thread->RunAndWait([&] {
    id = thread->loop().ReceiveMessage(pair[0], &message, 0,
                                       [&](int32_t r) { result.set_value(r); });
  });
  thread->RunAndWait([&] { thread->loop().Cancel(id); });
  EXPECT_EQ(result.get_future().get(), -ECANCELED);

  // The same slot serves the next operation; the old name must not reach it.
  std::promise<int32_t> second;
  thread->RunAndWait([&] {
    thread->loop().ReceiveMessage(pair[0], &message, 0, [&](int32_t r) { second.set_value(r); });
    thread->loop().Cancel(id);
  });
  auto future = second.get_future();
  EXPECT_EQ(future.wait_for(20ms), std::future_status::timeout);
  ASSERT_EQ(write(pair[1], "z", 1), 1);
  EXPECT_EQ(future.get(), 1);
  close(pair[0]);
  close(pair[1]);
}

TEST(Loop, StopCompletesWhatIsInFlightAndDropsTimers) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  char byte;
  iovec piece{&byte, 1};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  int32_t result = 1;
  bool fired = false;
  {
    const auto thread = StartLoop();
    thread->RunAndWait([&] {
      thread->loop().ReceiveMessage(pair[0], &message, 0, [&](int32_t r) { result = r; });
      thread->loop().StartTimer(1h, [&] { fired = true; });
    });
  }
  EXPECT_EQ(result, -ECANCELED);
  EXPECT_FALSE(fired);
  close(pair[0]);
  close(pair[1]);
}

TEST(Function, InlineAndHeapClosuresMoveAndDestroyOnce) {
  const auto token = std::make_shared<int>(5);
  {
    Function<int()> small = [token] { return *token; };
    std::array<char, 200> padding{};
    Function<int()> large = [token, padding] { return *token + padding[0]; };
    Function<int()> moved = std::move(small);
    EXPECT_FALSE(small);  // NOLINT: the moved-from state is specified
    EXPECT_EQ(moved() + large(), 10);
    moved = std::move(large);
    EXPECT_EQ(token.use_count(), 2);
  }
  EXPECT_EQ(token.use_count(), 1);
}

// The clever structure against the plain one.
TEST(TimerQueue, AgreesWithAMultimapOverRandomSteps) {
  std::mt19937 random(11);
  TimerQueue queue;
  std::multimap<int64_t, int> model;
  std::map<int, std::pair<TimerId, int64_t>> live;
  std::vector<int> fired;
  int64_t now = 0;
  for (int step = 0; step < 20'000; ++step) {
    const auto choice = random() % 10;
    if (choice < 5) {
      const int64_t at = now + static_cast<int64_t>(random() % 500);
      const TimerId id = queue.Add(BootClock::time_point(std::chrono::nanoseconds(at)),
                                   [&fired, step] { fired.push_back(step); });
      model.emplace(at, step);
      live[step] = {id, at};
    } else if (choice < 8 && !live.empty()) {
      auto victim = live.begin();
      std::advance(victim, random() % live.size());
      EXPECT_TRUE(queue.Cancel(victim->second.first));
      EXPECT_FALSE(queue.Cancel(victim->second.first));
      auto [from, to] = model.equal_range(victim->second.second);
      model.erase(std::find_if(from, to, [&](auto& e) { return e.second == victim->first; }));
      live.erase(victim);
    } else {
      now += static_cast<int64_t>(random() % 100);
      fired.clear();
      queue.RunDue(BootClock::time_point(std::chrono::nanoseconds(now)));
      std::vector<int> expected;
      while (!model.empty() && model.begin()->first <= now) {
        expected.push_back(model.begin()->second);
        live.erase(model.begin()->second);
        model.erase(model.begin());
      }
      ASSERT_EQ(fired, expected);
    }
    ASSERT_EQ(queue.size(), model.size());
  }
}

}  // namespace
}  // namespace fs3
