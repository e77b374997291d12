#pragma once

/// A group of ranks and what its members do together. (`slime::Group` is something else: the samples
/// of one prompt.)
///
/// Every member makes the same calls in the same order, also when it has nothing to give: a rank
/// that stays away leaves the others waiting until their deadline. One thread per rank calls.
///
/// Tensors are contiguous and changed in place. On a CPU an operation has happened when the call
/// returns; on a GPU it is in the current stream then, as a kernel would be. Both ends know all
/// shapes: no length travels.
///
///   reduce_scatter_  x_N on each of 3 ranks, shards [0, 4) [4, 8) [8, 9)
///                    afterwards rank 1 has the sums over the ranks of x[4..8); the rest of its x
///                    is undefined
///   all_gather_      the opposite: afterwards all ranks have what rank 1 had in x[4..8), ...
///
/// An operation that fails or exceeds its deadline throws GroupError; the group, and all others of
/// the same mesh, are then of no use.
///
/// `what` says what the caller is doing ("summing the gradients"); it stands in messages.

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace slime::comm {

/// The other members cannot be reached. The message has the rank in the world, what it was doing,
/// the operation and the axis.
class GroupError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Elements [begin, end) of a flat buffer.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

enum class Reduction { kSum, kMax, kMin };

/// One end of a message between two members: `x` goes to the peer, or is overwritten by what the
/// peer sends. A message without elements is none, at both ends.
struct Message {
  enum class Direction { kSend, kReceive };
  Direction direction;
  int peer;  // its rank in the group
  Tensor x;  // contiguous, any type
};

class RankGroup {
 public:
  virtual ~RankGroup() = default;
  virtual int rank() const = 0;  // in the group: 0 .. size() - 1
  virtual int size() const = 0;
  bool is_alone() const { return size() == 1; }

  /// Floating point or integers; afterwards the same bits on all members.
  virtual void all_reduce_(const Tensor& x, const char* what,
                           Reduction reduction = Reduction::kSum) = 0;
  /// Sums of x_N: shards[r], one for each member, is that of member r and may be empty. Floating
  /// point.
  virtual void reduce_scatter_(const Tensor& x_N, std::span<const Range> shards,
                               const char* what) = 0;
  /// Each member's shard of x_N to all members. Any type.
  virtual void all_gather_(const Tensor& x_N, std::span<const Range> shards, const char* what) = 0;
  /// x of the root to all members. Any type.
  virtual void broadcast_(const Tensor& x, int root, const char* what) = 0;
  /// All these messages at once; between two members they arrive in the order in which they are
  /// given. Only the members that are named take part. `operation` stands in messages of errors.
  virtual void exchange(std::span<const Message> messages, const char* operation,
                        const char* what) = 0;
  /// Returns when all members have called it; on a GPU for what is in the streams as well.
  virtual void barrier(const char* what) = 0;
  /// Everybody's bytes, of any length, in the order of the ranks. Waits for the answer on the host.
  virtual std::vector<std::string> all_gather(const std::string& bytes, const char* what) = 0;
};

// What can be said with these.

void send(RankGroup& group, const Tensor& x, int to, const char* what);
void receive_(RankGroup& group, const Tensor& x, int from, const char* what);

/// Each member's shard of x_N to the root; elsewhere x_N stays as it is.
void gather_(RankGroup& group, const Tensor& x_N, std::span<const Range> shards, int root,
             const char* what);

/// Rows to their owners. `in` [sum of in_rows, ...] has in_rows[r] rows for member r, one after
/// another; the result [sum of out_rows, ...] has out_rows[r] rows from member r. Alone: `in`
/// itself.
Tensor all_to_all(RankGroup& group, const Tensor& in, std::span<const int64_t> in_rows,
                  std::span<const int64_t> out_rows, const char* what);

}  // namespace slime::comm
