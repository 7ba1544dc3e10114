// Status and Result: how native code reports failure. No exceptions cross a module or the binding.
//
// The numbers are those of fs3/errors.py (one table, a test compares both) and travel in frames.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

namespace fs3 {

enum class Code : uint32_t {
  kOk = 0,
  kInvalidArgument = 1,
  kNotFound = 2,
  kAlreadyExists = 3,
  kPermissionDenied = 4,
  kNotADirectory = 5,
  kIsADirectory = 6,
  kNotEmpty = 7,
  kNoSpace = 8,
  kBusy = 9,
  kUnavailable = 10,
  kTimedOut = 11,
  kStaleRouting = 12,
  kStaleHandle = 13,
  kCorrupt = 14,
  kVersionMismatch = 15,
  kConflict = 16,
  kInternal = 17,
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  static Status Ok() { return {}; }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

// A value or the status that explains its absence.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}         // NOLINT: implicit
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {}  // NOLINT: implicit

  bool ok() const { return state_.index() == 0; }
  T& value() { return std::get<0>(state_); }
  const T& value() const { return std::get<0>(state_); }
  Status status() const { return ok() ? Status::Ok() : std::get<1>(state_); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace fs3
