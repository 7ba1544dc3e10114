// One read request frame on its way: its ops are answered one by one, into one buffer, which is
// sent from where it is.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "fs3/native/frame/chunk_ops.h"
#include "fs3/native/net/connection.h"
#include "fs3/native/server/byte_budget.h"

namespace fs3 {

class ReadFrame : public std::enable_shared_from_this<ReadFrame> {
 public:
  ReadFrame(Connection& connection, const FrameHeader& request, std::vector<ReadOp> ops,
            BudgetHold of_shard, BudgetHold of_connection);

  const std::vector<ReadOp>& ops() const { return ops_; }
  // Room for the data of an op.
  uint8_t* Place(size_t index) { return buffer_.data() + offsets_[index]; }
  // Once per op. The last one sends the reply.
  void Set(size_t index, const ReadReply& reply);

 private:
  void Send();

  const std::shared_ptr<Connection> connection_;
  const FrameHeader request_;
  const std::vector<ReadOp> ops_;
  const BudgetHold of_shard_;
  const BudgetHold of_connection_;
  std::vector<size_t> offsets_;
  std::vector<ReadReply> replies_;
  size_t missing_;
  Buffer buffer_;
};

}  // namespace fs3
