#pragma once

/// Choices of experts of an engine on a GPU: layers write them on the device while a step runs, they
/// are copied behind it, and lie beside pages on the host (engine/expert_pages.h) once it is collected.
///
/// The host is a step behind the device, so what happens to pages between two launches happens here
/// when the second one is collected: before that, whoever was told of the first finds its rows.
///
/// Dimensions: T rows as launched, Y layers, K visits.

#include <deque>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "engine/expert_pages.h"
#include "engine/scheduler.h"

namespace slime::engine {

class GpuExpertChoices {
 public:
  GpuExpertChoices(const model::ModelConfig& model, int64_t num_pages, at::Device device);

  /// int16 [T, Y, K], zeros, for the layers of a step. On the current stream.
  Tensor room(int64_t rows) const;
  /// Rows that were launched together: of the chunks the first ones.
  struct Made {
    std::span<const Chunk> chunks;
    Tensor made_TYK;
  };
  /// Behind the step: copies the chunks' rows to the host on the current stream. Steps are sent and
  /// collected in one order, two at most in flight.
  void send(std::initializer_list<Made> parts);
  /// The copy of the oldest step has arrived.
  void collect();

  void copy_page(PageId from, PageId to) { copies_.emplace_back(from, to); }
  void append(const CachedRows& rows, std::vector<int16_t>& out) const { pages_.append(rows, out); }
  /// Forgets steps that were sent.
  void reset();

 private:
  using Copies = std::vector<std::pair<PageId, PageId>>;
  struct Sent {
    Copies copies;                                   // of pages, before this step
    std::vector<std::pair<PageId, int64_t>> places;  // page and slot of each row
    int turn = 0;
  };

  const int64_t layers_, per_token_;
  const at::Device device_;
  ExpertPages pages_;
  Tensor on_host_[2];  // int16, locked; as large as a step has needed
  int turn_ = 0;
  Copies copies_;  // since the last launch
  std::deque<Sent> sent_;
};

}  // namespace slime::engine
