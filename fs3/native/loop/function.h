// A move-only callable. Closures of up to kInlineBytes live inside it, so that a completion or a
// posted task costs no allocation; larger ones go to the heap.
#pragma once

#include <cassert>
#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace fs3 {

template <typename Signature>
class Function;

template <typename R, typename... Args>
class Function<R(Args...)> {
 public:
  static constexpr size_t kInlineBytes = 48;

  Function() = default;

  template <typename F>
  requires(!std::is_same_v<std::decay_t<F>, Function> &&
           std::is_invocable_r_v<R, std::decay_t<F>&, Args...>)
      Function(F&& callable) {  // NOLINT: implicit, like std::function
    using Callable = std::decay_t<F>;
    if constexpr (FitsInline<Callable>()) {
      new (storage_) Callable(std::forward<F>(callable));
      operations_ = &kOperations<Callable>;
    } else {
      new (storage_) Boxed<Callable>{std::make_unique<Callable>(std::forward<F>(callable))};
      operations_ = &kOperations<Boxed<Callable>>;
    }
  }

  Function(Function&& other) noexcept { TakeFrom(other); }
  Function& operator=(Function&& other) noexcept {
    if (this != &other) {
      Reset();
      TakeFrom(other);
    }
    return *this;
  }
  Function(const Function&) = delete;
  Function& operator=(const Function&) = delete;
  ~Function() { Reset(); }

  explicit operator bool() const { return operations_ != nullptr; }

  R operator()(Args... args) {
    assert(operations_ != nullptr);
    return operations_->invoke(storage_, std::forward<Args>(args)...);
  }

 private:
  struct Operations {
    R (*invoke)(void*, Args&&...);
    void (*move)(void* from, void* to);  // leaves `from` destroyed
    void (*destroy)(void*);
  };

  template <typename Callable>
  struct Boxed {
    std::unique_ptr<Callable> callable;
    R operator()(Args... args) { return (*callable)(std::forward<Args>(args)...); }
  };

  template <typename Callable>
  static constexpr bool FitsInline() {
    return sizeof(Callable) <= kInlineBytes && alignof(Callable) <= alignof(std::max_align_t) &&
           std::is_nothrow_move_constructible_v<Callable>;
  }

  template <typename Callable>
  static constexpr Operations kOperations = {
      [](void* at, Args&&... args) -> R {
        return (*std::launder(static_cast<Callable*>(at)))(std::forward<Args>(args)...);
      },
      [](void* from, void* to) {
        auto* callable = std::launder(static_cast<Callable*>(from));
        new (to) Callable(std::move(*callable));
        callable->~Callable();
      },
      [](void* at) { std::launder(static_cast<Callable*>(at))->~Callable(); },
  };

  void TakeFrom(Function& other) {
    if (other.operations_ == nullptr) return;
    other.operations_->move(other.storage_, storage_);
    operations_ = std::exchange(other.operations_, nullptr);
  }

  void Reset() {
    if (operations_ != nullptr) std::exchange(operations_, nullptr)->destroy(storage_);
  }

  const Operations* operations_ = nullptr;
  alignas(std::max_align_t) std::byte storage_[kInlineBytes];
};

}  // namespace fs3
