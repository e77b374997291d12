#include "train/pipeline.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "train/pipeline_schedule.h"

namespace slime::train {
namespace {

/// One token that nobody asked for.
MicroBatch filler() {
  const TokenId token[] = {0};
  const Sequence sequence{.tokens = token, .prompt_length = 1};
  MicroBatch micro_batch;
  micro_batch.packed = pack({&sequence, 1}, {});
  return micro_batch;
}

/// Items of a rank whose passes are in step with those of other samples.
std::vector<PipelineItem> in_step(std::vector<PipelineItem> items, const comm::Mesh& mesh,
                                  const MicroBatch* filler) {
  std::string own;  // a byte for each item: whether it has a backward
  for (const PipelineItem& item : items) own.push_back(item.has_backward ? 1 : 0);
  for (const std::string& other : mesh.dp().all_gather(own, "as many passes on each rank")) {
    if (other.size() > items.size()) items.resize(other.size(), {filler, false});
    for (std::size_t i = 0; i < other.size(); ++i) items[i].has_backward |= other[i] != 0;
  }
  return items;
}

class Pipeline final {
 public:
  /// at_end is called for the first `num_items` alone.
  Pipeline(model::Network& network, const comm::Mesh& mesh, const std::vector<PipelineItem>& items,
           std::size_t num_items, const AtEnd& at_end)
      : network_(network), mesh_(mesh), items_(items), num_items_(num_items), at_end_(at_end) {}

  void run() {
    std::vector<bool> has_backward;
    for (const PipelineItem& item : items_) has_backward.push_back(item.has_backward);
    for (const Tick& tick : pipeline_ticks(shape_, stage_, has_backward)) {
      if (tick.step)
        tick.step->direction == Direction::kForward ? forward(*tick.step) : backward(*tick.step);
      transfer(tick.transfers);
    }
  }

 private:
  using Place = std::pair<int64_t, int>;  // micro-batch, chunk

  /// A micro-batch between its forward and its backward pass through one chunk.
  struct UnderWay {
    Tensor in_LH;  // leaf of the graph; undefined in the first range
    Tensor out;    // the stream, or what is differentiated
  };

  bool is_in_step() const { return mesh_.sizes().experts_join_samples(); }
  bool is_first(int chunk) const { return stage_ == 0 && chunk == 0; }
  bool is_last(int chunk) const {
    return stage_ + 1 == shape_.stages && chunk + 1 == shape_.chunks;
  }

  /// Of the micro-batch; made for the first chunk, gone with the last use.
  Pass& pass_of(int64_t item) {
    std::unique_ptr<Pass>& pass = passes_[item];
    const PipelineItem& of_item = items_[static_cast<std::size_t>(item)];
    if (pass == nullptr)
      pass = std::make_unique<Pass>(network_, mesh_, *of_item.micro_batch, of_item.routing);
    return *pass;
  }
  void end_use(int64_t item) {
    const bool has_backward = items_[static_cast<std::size_t>(item)].has_backward;
    if (++num_uses_[item] == shape_.chunks * (has_backward ? 2 : 1)) passes_.erase(item);
  }

  void forward(const PipelineStep& step) {
    const auto item = static_cast<std::size_t>(step.micro_batch);
    const at::AutoGradMode grad_mode(items_[item].has_backward);
    Pass& pass = pass_of(step.micro_batch);
    UnderWay way;
    if (!is_first(step.chunk)) {
      way.in_LH = take(step);
      way.in_LH.set_requires_grad(items_[item].has_backward);
    }
    way.out = pass.forward(step.chunk, way.in_LH);
    if (is_last(step.chunk)) way.out = ended(item, pass, way.out);
    if (!is_last(step.chunk)) made_[key_of(step)] = way.out.detach();
    if (items_[item].has_backward) under_way_[{step.micro_batch, step.chunk}] = std::move(way);
    end_use(step.micro_batch);
  }

  Tensor ended(std::size_t item, const Pass& pass, const Tensor& hidden_LH) {
    const Tensor out = item < num_items_ ? at_end_(item, pass, hidden_LH) : Tensor();
    // Whose passes are in step have a backward without anything to differentiate: of no row.
    if (out.defined() || !items_[item].has_backward || !is_in_step()) return out;
    return hidden_LH.narrow(0, 0, 0).sum();
  }

  void backward(const PipelineStep& step) {
    const at::AutoGradMode grad_mode(true);
    UnderWay way = std::move(under_way_.extract({step.micro_batch, step.chunk}).mapped());
    if (!is_last(step.chunk)) {
      way.out.backward(take(step));
    } else if (way.out.defined()) {
      way.out.backward();
    }
    if (!is_first(step.chunk)) {
      const Tensor& grad = way.in_LH.grad();  // undefined: nothing depended on it
      made_[key_of(step)] = grad.defined() ? grad.contiguous() : at::zeros_like(way.in_LH);
    }
    way = {};  // the graph goes before what it points at
    end_use(step.micro_batch);
  }

  using Key = std::tuple<Direction, int64_t, int>;
  static Key key_of(const PipelineStep& step) {
    return {step.direction, step.micro_batch, step.chunk};
  }

  /// What the step reads: from another stage, or of the neighbouring chunk of this one.
  Tensor take(const PipelineStep& step) {
    if (auto found = arrived_.extract(key_of(step))) return std::move(found.mapped());
    PipelineStep before = step;  // of a pipeline of one stage
    before.chunk += step.direction == Direction::kForward ? -1 : 1;
    auto found = made_.extract(key_of(before));
    check(!found.empty(), "what a pipeline step reads has been made");
    return std::move(found.mapped());
  }

  void transfer(const std::vector<Transfer>& transfers) {
    if (transfers.empty()) return;
    std::vector<comm::Message> messages;
    for (const Transfer& transfer : transfers) {
      if (transfer.sends) {
        Tensor x = std::move(made_.extract(key_of(transfer.from)).mapped()).contiguous();
        messages.push_back({comm::Message::Direction::kSend, transfer.peer, std::move(x)});
      } else {
        const Tensor x = pass_of(transfer.step.micro_batch).empty_stream();
        arrived_[key_of(transfer.step)] = x;
        messages.push_back({comm::Message::Direction::kReceive, transfer.peer, x});
      }
    }
    mesh_.pp().exchange(messages, "exchange", "streams between pipeline stages");
  }

  model::Network& network_;
  const comm::Mesh& mesh_;
  const std::vector<PipelineItem>& items_;
  std::size_t num_items_;
  const AtEnd& at_end_;
  const PipelineShape shape_{mesh_.sizes().pp, mesh_.sizes().chunks};
  const int stage_ = mesh_.at().pp;
  std::map<int64_t, std::unique_ptr<Pass>> passes_;
  std::map<int64_t, int> num_uses_;
  std::map<Place, UnderWay> under_way_;  // graphs: before the passes they point at go
  std::map<Key, Tensor> made_;
  std::map<Key, Tensor> arrived_;
};

}  // namespace

void run_pipeline(model::Network& network, const comm::Mesh& mesh,
                  const std::vector<PipelineItem>& items, const AtEnd& at_end) {
  if (!network.config().has_experts() || !mesh.sizes().experts_join_samples())
    return Pipeline(network, mesh, items, items.size(), at_end).run();
  const MicroBatch between = filler();
  const std::vector<PipelineItem> all = in_step(items, mesh, &between);
  Pipeline(network, mesh, all, items.size(), at_end).run();
}

std::vector<PipelineItem> items_of(const std::vector<StepPlan>& plans) {
  std::vector<PipelineItem> items;
  for (const StepPlan& plan : plans) {
    for (const MicroBatch& micro_batch : plan.micro_batches) items.push_back({&micro_batch, false});
  }
  return items;
}

bool is_last_stage(const comm::Mesh& mesh) { return mesh.at().pp + 1 == mesh.sizes().pp; }

Tensor from_last_stage(const comm::Mesh& mesh, const Tensor& x, at::IntArrayRef sizes,
                       const at::TensorOptions& options) {
  if (mesh.pp().is_alone()) return x;
  const Tensor out =
      is_last_stage(mesh) ? x.to(options.dtype()).contiguous() : at::empty(sizes, options);
  mesh.pp().broadcast_(out, mesh.sizes().pp - 1, "numbers of the last stage");
  return out;
}

}  // namespace slime::train
