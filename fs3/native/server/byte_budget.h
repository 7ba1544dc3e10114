// A bound on bytes held, and the right to hold some of them. One thread.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace fs3 {

class ByteBudget {
 public:
  explicit ByteBudget(size_t max) : max_(max) {}
  // One request always fits, however large, so that the bound cannot starve anybody.
  bool HasRoom(size_t bytes) const { return used_ == 0 || used_ + bytes <= max_; }
  size_t used() const { return used_; }

 private:
  friend class BudgetHold;
  const size_t max_;
  size_t used_ = 0;
};

// Holds bytes until it is destroyed.
class BudgetHold {
 public:
  BudgetHold() = default;
  BudgetHold(std::shared_ptr<ByteBudget> budget, size_t bytes)
      : budget_(std::move(budget)), bytes_(bytes) {
    budget_->used_ += bytes_;
  }
  BudgetHold(BudgetHold&& other) noexcept = default;
  BudgetHold& operator=(BudgetHold&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~BudgetHold() {
    if (budget_ != nullptr) budget_->used_ -= bytes_;
  }

 private:
  std::shared_ptr<ByteBudget> budget_;
  size_t bytes_ = 0;
};

}  // namespace fs3
