// Coroutines for code that waits on callbacks, so that an operation reads from top to bottom.
// All of it belongs to one thread; nothing here locks.
#pragma once

#include <coroutine>
#include <deque>
#include <exception>
#include <optional>
#include <utility>

#include "fs3/native/base/status.h"
#include "fs3/native/loop/function.h"

namespace fs3 {

// Starts at once, nobody waits for it, frees itself at its end.
struct Detached {
  struct promise_type {
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

// Starts at once; awaited exactly once, by its caller, which thereby outlives it.
template <typename T>
class [[nodiscard]] Async {
 public:
  struct promise_type {
    struct Final {
      bool await_ready() noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> self) noexcept {
        const auto waiter = self.promise().waiter;
        return waiter ? waiter : std::noop_coroutine();
      }
      void await_resume() noexcept {}
    };
    Async get_return_object() {
      return Async(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_never initial_suspend() { return {}; }
    Final final_suspend() noexcept { return {}; }
    void return_value(T result) { value.emplace(std::move(result)); }
    void unhandled_exception() { std::terminate(); }

    std::optional<T> value;
    std::coroutine_handle<> waiter;
  };

  Async(Async&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Async& operator=(Async&&) = delete;
  ~Async() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() const { return handle_.done(); }
  void await_suspend(std::coroutine_handle<> waiter) { handle_.promise().waiter = waiter; }
  T await_resume() { return std::move(*handle_.promise().value); }

 private:
  explicit Async(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

// Waits for several callbacks; the first error wins. Must be awaited after the last Add.
class Gather {
 public:
  Gather() = default;
  Gather(const Gather&) = delete;
  Gather& operator=(const Gather&) = delete;

  Function<void(Status)> Add() {
    ++pending_;
    return [this](Status status) {
      if (!status.ok() && status_.ok()) status_ = std::move(status);
      if (--pending_ == 0 && waiter_) std::exchange(waiter_, nullptr).resume();
    };
  }

  bool await_ready() const { return pending_ == 0; }
  void await_suspend(std::coroutine_handle<> waiter) { waiter_ = waiter; }
  Status await_resume() { return std::exchange(status_, Status()); }

 private:
  size_t pending_ = 0;
  Status status_;
  std::coroutine_handle<> waiter_;
};

// Waits for one callback with a result.
template <typename T>
class Arrival {
 public:
  Arrival() = default;
  Arrival(const Arrival&) = delete;
  Arrival& operator=(const Arrival&) = delete;

  Function<void(Result<T>)> Expect() {
    return [this](Result<T> result) {
      result_.emplace(std::move(result));
      if (waiter_) std::exchange(waiter_, nullptr).resume();
    };
  }

  bool await_ready() const { return result_.has_value(); }
  void await_suspend(std::coroutine_handle<> waiter) { waiter_ = waiter; }
  Result<T> await_resume() { return std::move(*result_); }

 private:
  std::optional<Result<T>> result_;
  std::coroutine_handle<> waiter_;
};

// Resumes coroutines one after the other instead of inside each other, which bounds the stack.
class ResumeQueue {
 public:
  void Push(std::coroutine_handle<> handle) {
    ready_.push_back(handle);
    if (running_) return;
    running_ = true;
    while (!ready_.empty()) {
      const auto next = ready_.front();
      ready_.pop_front();
      next.resume();
    }
    running_ = false;
  }

 private:
  std::deque<std::coroutine_handle<>> ready_;
  bool running_ = false;
};

// A mutex for coroutines, first come first served.
class Turn {
 public:
  class [[nodiscard]] Guard {
   public:
    explicit Guard(Turn* turn) : turn_(turn) {}
    Guard(Guard&& other) noexcept : turn_(std::exchange(other.turn_, nullptr)) {}
    Guard& operator=(Guard&&) = delete;
    ~Guard() { Release(); }
    void Release() {
      if (turn_ != nullptr) std::exchange(turn_, nullptr)->Give();
    }

   private:
    Turn* turn_;
  };

  explicit Turn(ResumeQueue& queue) : queue_(queue) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  auto Take() {
    struct Awaiter {
      Turn* turn;
      bool await_ready() const { return !std::exchange(turn->taken_, true); }
      void await_suspend(std::coroutine_handle<> waiter) { turn->waiters_.push_back(waiter); }
      Guard await_resume() { return Guard(turn); }
    };
    return Awaiter{this};
  }

 private:
  void Give() {
    if (waiters_.empty()) {
      taken_ = false;
      return;
    }
    const auto next = waiters_.front();  // which takes the turn over
    waiters_.pop_front();
    queue_.Push(next);
  }

  ResumeQueue& queue_;
  bool taken_ = false;
  std::deque<std::coroutine_handle<>> waiters_;
};

}  // namespace fs3
