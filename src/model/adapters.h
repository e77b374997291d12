#pragma once

/// Adapters of a network: low-rank pairs beside its matrices (kernels/adapters.h), and tensors trained in the
/// place of its own. The network's numbers never change.
///
/// A slot has one adapter. Trainers and engines of a run have one slot that all rows take; a server has
/// several, and each row takes one of them or none (TokenBatch::adapter_T).

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "comm/mesh.h"
#include "kernels/adapters.h"
#include "model/adapter_tensors.h"
#include "model/network.h"

namespace slime::model {

class Adapters {
 public:
  /// Points the network's matrices at slots without adapters. Throws ConfigError where its device has no such
  /// products, or for several slots on a GPU whose numbers have not 16 bits. Of the network, which outlives it.
  Adapters(Network& network, int64_t num_slots);
  Adapters(const Adapters&) = delete;
  Adapters& operator=(const Adapters&) = delete;

  /// For tests: with these tables, in the place of the device's.
  Adapters(Network& network, int64_t num_slots, const kernels::AdapterTables* tables);

  /// Throws ConfigError for what the device cannot multiply. Any thread; changes nothing.
  void check_fits(const AdapterTensors& tensors) const;

  /// Whether passes whose rows do not take it never read it: the device finds all of it in tables. Such adapters come
  /// and go beside running passes of other rows.
  bool is_in_tables(const AdapterTensors& tensors) const;

  struct Change {
    int64_t slot = 0;
    std::shared_ptr<AdapterTensors> tensors;  // null: the slot has none
  };
  /// Between two passes, or while none is launched where all that come and go are in tables. Throws ConfigError, before
  /// anything changes, as check_fits() does.
  void put(const std::vector<Change>& changes);
  void put(int64_t slot, std::shared_ptr<AdapterTensors> tensors) {
    put({{.slot = slot, .tensors = std::move(tensors)}});
  }
  const std::shared_ptr<AdapterTensors>& at(int64_t slot) const {
    return slots_[static_cast<size_t>(slot)];
  }
  int64_t num_slots() const { return static_cast<int64_t>(slots_.size()); }

  /// Of the first slot: what is trained.
  Weights& weights() { return slots_.front()->weights(); }

  bool is_on() const { return rows_.is_on; }
  /// Off: passes compute what the network does without adapters.
  void set_on(bool on);
  void set_dropout(double dropout, uint64_t seed) {
    rows_.dropout = dropout;
    rows_.seed = seed;
  }

  /// Masks of dropout are those of the step, also where a run goes on from a checkpoint.
  void begin_step(int64_t step) { num_passes_ = static_cast<uint64_t>(step) << 32; }

  /// Changes where put() has made recorded passes wrong: other matrices have pairs, or there are more.
  int64_t num_changes() const { return num_changes_; }

  /// Each row of a pass says which it takes; else all take the first slot.
  void choose_by_row() { chooses_by_row_ = true; }
  bool chooses_by_row() const { return chooses_by_row_; }

  /// A forward pass begins.
  void begin(const TokenBatch& batch);
  /// Products from here on are of rows that take these slots (TokenBatch::adapter_T).
  void take(const Tensor& slot_R);
  /// The same of an engine's passes on a GPU.
  void take(const kernels::AdapterTiles& tiles) { rows_.tiles = tiles; }

 private:
  void point_saved();

  Network& network_;
  const kernels::AdapterTables* tables_ = nullptr;  // of several slots on a GPU
  bool chooses_by_row_ = false;
  kernels::AdapterRows rows_;
  int64_t num_changes_ = 0;
  uint64_t num_passes_ = 0;  // with gradients, behind the number of the step
  std::vector<std::unique_ptr<kernels::MatrixAdapters>> of_parameter_;
  std::vector<std::shared_ptr<AdapterTensors>> slots_;
};

/// Throws ConfigError with the modules of the form that rows of one batch cannot choose among on a GPU: of latent
/// attention's expansion, whose prompts are expanded together.
void check_rows_choose_on_gpu(const AdapterForm& form);

/// Passes without adapters while it lives.
class AdaptersOff final {
 public:
  explicit AdaptersOff(Adapters* adapters) : adapters_(adapters) {
    if (adapters_ != nullptr) adapters_->set_on(false);
  }
  ~AdaptersOff() {
    if (adapters_ != nullptr) adapters_->set_on(true);
  }
  AdaptersOff(const AdaptersOff&) = delete;
  AdaptersOff& operator=(const AdaptersOff&) = delete;

 private:
  Adapters* adapters_;
};

/// One slot with the pairs of `form`, zero.
void add_adapters(Network& network, const AdapterForm& form,
                  const comm::Mesh& mesh = comm::Mesh::single());

/// Over the numbers of `network`, which outlives it, in whose `precision`: with an adapter of its own, of the same
/// form, zero.
std::unique_ptr<Network> with_another_adapter(Network& network, Precision precision,
                                              const comm::Mesh& mesh = comm::Mesh::single());

}  // namespace slime::model
