// Collects the results of the ops of one frame, which become known one by one, and answers when the
// last one is.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fs3/native/frame/chunk_ops.h"
#include "fs3/native/net/connection.h"

namespace fs3 {

template <typename ResultType>
class OpReplies {
 public:
  OpReplies(Connection& connection, const FrameHeader& request, size_t count)
      : connection_(connection.shared_from_this()),
        request_(request),
        results_(count),
        missing_(count) {}

  // Once per index. The last one sends the reply.
  void Set(size_t index, const ResultType& result) {
    results_[index] = result;
    if (--missing_ == 0) Send();
  }

  void SetCode(size_t index, Code code) {
    ResultType result;
    result.code = static_cast<uint32_t>(code);
    Set(index, result);
  }

 private:
  // A client that has gone needs no answer.
  void Send() {
    (void)connection_->SendReply(request_, Code::kOk,
                                 EncodeOps(std::span<const ResultType>(results_)));
  }

  const std::shared_ptr<Connection> connection_;
  const FrameHeader request_;
  std::vector<ResultType> results_;
  size_t missing_;
};

}  // namespace fs3
