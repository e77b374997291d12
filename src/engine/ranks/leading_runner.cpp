#include "engine/ranks/leading_runner.h"

#include <ATen/ATen.h>

#include <map>
#include <utility>

#include "comm/rank_group.h"
#include "engine/error_text.h"
#include "engine/ranks/peer_group.h"
#include "engine/remote/frames.h"
#include "model/weight_checksums.h"
#include "model/whole_weights.h"
#include "net/binary.h"

namespace slime::engine {
namespace {

/// Of a tensor, between two of the followers' steps.
constexpr std::size_t kPieceBytes = std::size_t{16} << 20;

template <typename Config, typename Fn>
void each_field(Config& config, const Fn& fn) {
  fn(config.kv_dtype);
  fn(config.num_pages);
  fn(config.num_states);
  fn(config.num_window_groups);
  fn(config.max_running_requests);
  fn(config.max_prefill_tokens);
  fn(config.most_drafts);
  fn(config.context_length);
  fn(config.shares_prompt_reads);
  fn(config.records_steps);
  fn(config.records_experts);
  fn(config.computes_all_rows);
  fn(config.verify_tokens);
  fn(config.eos_ids);
}

template <typename Id>
std::string pair_frame(Id from, Id to) {
  net::BinaryWriter out;
  out.put(int64_t{from});
  out.put(int64_t{to});
  return out.take();
}

std::string ids_of(const std::vector<std::optional<kernels::SampledToken>>& tokens) {
  std::vector<TokenId> ids;
  for (const auto& token : tokens) ids.push_back(token ? token->id : kPendingToken);
  net::BinaryWriter out;
  out.put(ids);
  return out.take();
}

std::string constants_frame(const model::Weights& weights) {
  const Tensor constants_C = weights.flat_constants().cpu();  // sync: they are sent
  const float* first = constants_C.const_data_ptr<float>();
  net::BinaryWriter out;
  out.put(std::vector<float>(first, first + constants_C.numel()));
  return out.take();
}

std::string resets_frame(bool resets) {
  net::BinaryWriter out;
  out.put(resets);
  return out.take();
}

}  // namespace

WeightChecksums checksums_of_rank(model::Weights& weights, bool resets, comm::RankGroup& ranks) {
  if (resets) model::fill_with_noise(weights);
  return model::checksums_of(weights, ranks);
}

std::string to_frame(const StepRunnerConfig& config) {
  net::BinaryWriter out;
  each_field(config, [&](const auto& field) { out.put(field); });
  return out.take();
}

StepRunnerConfig step_runner_config_from(std::string_view frame) {
  net::BinaryReader in(frame);
  StepRunnerConfig config;
  each_field(config, [&](auto& field) { in.get(field); });
  in.end();
  return config;
}

LeadingRunner::LeadingRunner(std::unique_ptr<StepRunner> own, Followers& followers,
                             comm::RankGroup& ranks, const StepRunnerConfig& config, OnLost on_lost)
    : own_(std::move(own)), followers_(followers), ranks_(ranks), on_lost_(std::move(on_lost)) {
  StepRunnerConfig others = config;
  others.records_experts = false;  // routers are whole: each rank's choices are rank 0's
  others.computes_all_rows = config.records_experts;
  followers_.tell(RankOrder::kOpen, to_frame(others));
}

template <typename Fn>
auto LeadingRunner::in_step(const Fn& body) {
  if (lost_) throw comm::GroupError(*lost_);
  try {
    return body();
  } catch (const std::exception& error) {
    lost_ = text_of(error);
    if (on_lost_) on_lost_(*lost_);
    throw comm::GroupError(*lost_);
  }
}

template <typename Fn>
auto LeadingRunner::together(RankOrder order, const std::string& payload, const Fn& own) {
  return in_step([&] {
    followers_.tell(order, payload);
    return own();
  });
}

void LeadingRunner::copy_page(PageId from, PageId to) {
  together(RankOrder::kCopyPage, pair_frame(from, to), [&] { own_->copy_page(from, to); });
}

void LeadingRunner::copy_state(StateId from, StateId to) {
  together(RankOrder::kCopyState, pair_frame(from, to), [&] { own_->copy_state(from, to); });
}

bool LeadingRunner::launch(std::span<const Chunk> chunks) {
  return together(RankOrder::kStep, steps_.frame_of(chunks), [&] { return own_->launch(chunks); });
}

std::vector<std::optional<kernels::SampledToken>> LeadingRunner::collect() {
  return in_step([&] {
    auto tokens = own_->collect();
    check_peers(ranks_);
    followers_.tell(RankOrder::kCollect, ids_of(tokens));
    return tokens;
  });
}

Expected<void> LeadingRunner::load_elsewhere(const std::filesystem::path& directory) {
  try {
    return followers_.ask(RankOrder::kLoad, directory.string());
  } catch (const std::exception& error) {  // the next step fails too
    return failure(text_of(error));
  }
}

Expected<void> LeadingRunner::change_elsewhere(const model::TensorUpdate& update,
                                               const model::Weights& changed, bool begins) {
  try {
    if (begins) {
      Expected<void> begun = followers_.ask(RankOrder::kChange, "");
      if (!begun) return begun;
    }
    send_changes(update, changed);
    return {};
  } catch (const std::exception& error) {  // the next step fails too
    return failure(text_of(error));
  }
}

/// Whole tensors: each rank takes its slices of them.
void LeadingRunner::send_changes(const model::TensorUpdate& update, const model::Weights& changed) {
  const at::ScalarType dtype = changed.flat().scalar_type();
  std::map<std::string_view, const model::NamedWeight*> weights;
  for (const model::NamedWeight& weight : changed.tensors()) weights[weight.name] = &weight;
  for (const auto& [name, value] : update.tensors) {
    const auto weight = weights.find(name);
    if (weight == weights.end()) continue;
    const Tensor stored = value.to(at::kCPU, dtype).contiguous();
    const std::string_view all(static_cast<const char*>(stored.const_data_ptr()), stored.nbytes());
    const auto begin =
        static_cast<std::size_t>(weight->second->whole_offset * stored.element_size());
    for (std::size_t offset = 0; offset < all.size(); offset += kPieceBytes)
      followers_.tell(
          RankOrder::kWeights,
          to_frame(WeightPiece{.total_bytes = static_cast<std::size_t>(model::whole_bytes(changed)),
                               .offset = begin + offset,
                               .bytes = all.substr(offset, kPieceBytes)}));
  }
  followers_.tell(RankOrder::kConstants, constants_frame(changed));
}

void LeadingRunner::copy_weights(const FreshWeights& fresh) {
  together(RankOrder::kCopyWeights, "", [&] { own_->copy_weights(fresh); });
}

void LeadingRunner::exchange_network(model::Network& network) {
  together(RankOrder::kExchange, constants_frame(network.trained()),
           [&] { own_->exchange_network(network); });
}

WeightChecksums LeadingRunner::checksums_of(model::Weights& weights, bool resets) {
  return together(RankOrder::kChecksums, resets_frame(resets),
                  [&] { return checksums_of_rank(weights, resets, ranks_); });
}

/// Also where the ranks are lost: the error has been told.
void LeadingRunner::reset() {
  steps_.forget();
  if (!lost_) together(RankOrder::kForgetLaunched, "", [] {});
  own_->reset();
}

void LeadingRunner::release_memory() {
  together(RankOrder::kRelease, "", [&] {
    own_->release_memory();
    ranks_.barrier(kReleasing);  // who trains next takes that memory, on all ranks
  });
}

void LeadingRunner::resume_memory() {
  together(RankOrder::kResume, "", [&] { own_->resume_memory(); });
}

}  // namespace slime::engine
