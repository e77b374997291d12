#pragma once

/// Data-parallel ranks: what they have to tell one another in a training step.
///
/// Each rank holds all weights and gradients, trains its share of the samples (train/share.h) and
/// owns one part of the flat buffers: it alone keeps master weights and moments of that part
/// (ZeRO-1). Per training step gradients are summed into their owners, the owners update, and the
/// new weights go to everybody:
///
///   buffer of N elements      | part of rank 0 | part of rank 1 | ...
///   reduce_scatter_(grad)       sum over ranks   sum over ranks         each at its owner
///   all_gather_(weights)        from rank 0      from rank 1            at all ranks
///
/// Every rank makes the same calls in the same order, also when it owns no token: a rank that stays
/// away leaves the others waiting until their deadline. Small numbers are gathered and added in the
/// order of the ranks, so all ranks take the same decisions from the same bits.
///
/// A collective that fails or exceeds its deadline throws RanksError; the group is then of no use.

#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace slime::train {

/// The other ranks cannot be reached. The message names the operation.
class RanksError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// [begin, end) of a flat buffer.
struct Part {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// The part of x_N that this rank owns becomes the sum over all ranks; the rest of x_N is left
  /// undefined. Contiguous, float32 or float64. `what` is for messages, as in all of these.
  virtual void reduce_scatter_(const Tensor& x_N, const char* what) = 0;
  /// Each rank's part of x_N goes to all ranks. Contiguous, any type.
  virtual void all_gather_(const Tensor& x_N, const char* what) = 0;
  /// Each rank's part of x_N goes to rank 0; elsewhere x_N stays as it is.
  virtual void gather_(const Tensor& x_N, const char* what) = 0;
  /// Everybody's bytes, in the order of the ranks.
  virtual std::vector<std::string> all_gather(const std::string& bytes, const char* what) = 0;

  bool is_alone() const { return size() == 1; }
  /// What `rank` owns of `num_elements`: equal parts that begin at cache lines; the last ones may
  /// be shorter, or empty.
  Part part_of(int64_t num_elements, int rank) const;
  Part own_part(int64_t num_elements) const { return part_of(num_elements, rank()); }
};

/// The only rank there is: nothing moves, nothing is copied.
class OneRank final : public Ranks {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void reduce_scatter_(const Tensor&, const char*) override {}
  void all_gather_(const Tensor&, const char*) override {}
  void gather_(const Tensor&, const char*) override {}
  std::vector<std::string> all_gather(const std::string& bytes, const char*) override {
    return {bytes};
  }
};

// Sums over the ranks, the same bits on each of them.

double sum(Ranks& ranks, double x, const char* what);
std::vector<double> sum(Ranks& ranks, std::span<const double> x, const char* what);

/// Sums by name. A rank may lack names: it trained nothing that has them.
std::map<std::string, double> sum(Ranks& ranks, const std::map<std::string, double>& x,
                                  const char* what);
/// The same, of the names that every rank has.
std::map<std::string, double> sum_of_common(Ranks& ranks, const std::map<std::string, double>& x,
                                            const char* what);

}  // namespace slime::train
