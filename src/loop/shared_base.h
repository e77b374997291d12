#pragma once

/// One base model under several runs of a process, each with an adapter of its own (loop/adapter_runs.h).
///
/// The base's numbers are there once. Each run's trainer and the one engine have a network over them, with
/// adapters of its own: none waits for another's switches. One trainer works at a time
/// (loop/ticket_lock.h): activations do not add up.

#include <cstdint>
#include <memory>
#include <string>

#include "loop/ticket_lock.h"
#include "model/network.h"
#include "roles/adapter_engine.h"
#include "setup/prompts.h"

namespace slime::loop {

struct Stations;

/// Built up on one thread, run after run; the loops then share the lock and the engine.
class SharedBase {
 public:
  /// `num_adapter_elements`: of the adapters of all runs together.
  SharedBase(int64_t num_runs, int64_t num_adapter_elements)
      : num_runs_(num_runs), num_adapter_elements_(num_adapter_elements) {}
  SharedBase(const SharedBase&) = delete;
  SharedBase& operator=(const SharedBase&) = delete;

  /// A network over the numbers of `directory`, which the first run loads. Throws ConfigError for a run that
  /// begins with another model.
  std::unique_ptr<model::Network> network(const std::string& directory,
                                          const model::Precision& precision);
  /// What `run` sees of the engine, which the first run starts. Its network is there.
  std::unique_ptr<roles::Engines> engines(const Stations& run, WeightVersion version);
  /// What there is beside a run whose adapter has `own_elements`: the other runs' with gradients and moments, and
  /// the engine's.
  int64_t bytes_beside(int64_t own_elements) const;
  /// Held by the trainer that works.
  TicketLock& trainer_lock() { return trainer_lock_; }

 private:
  std::unique_ptr<model::Network> another() const;

  const int64_t num_runs_, num_adapter_elements_;
  std::string directory_;
  model::Precision precision_;
  std::unique_ptr<model::Network> base_;
  setup::ModelText text_;  // of the engine
  std::unique_ptr<roles::SharedEngine> engine_;
  TicketLock trainer_lock_;
};

}  // namespace slime::loop
