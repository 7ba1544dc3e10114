// How a Status leaves the extension: as fs3._native.NativeError(code, message).
#pragma once

#include <exception>
#include <utility>

#include "fs3/native/base/status.h"

namespace fs3::bind {

// Lives only inside bind/: nanobind turns it into NativeError, so it may be thrown while the
// interpreter lock is released.
class StatusException : public std::exception {
 public:
  explicit StatusException(Status status) : status_(std::move(status)) {}
  const Status& status() const { return status_; }
  const char* what() const noexcept override { return status_.message().c_str(); }

 private:
  Status status_;
};

inline void ThrowIfError(const Status& status) {
  if (!status.ok()) throw StatusException(status);
}

template <typename T>
T ValueOrThrow(Result<T> result) {
  if (!result.ok()) throw StatusException(result.status());
  return std::move(result.value());
}

}  // namespace fs3::bind
