#include "engine/ranks/following_rank.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <utility>

#include "comm/rank_group.h"
#include "core/error.h"
#include "engine/device_copies.h"
#include "engine/error_text.h"
#include "engine/ranks/leading_runner.h"
#include "engine/ranks/peer_group.h"
#include "engine/remote/frames.h"
#include "model/adapters.h"
#include "model/whole_weights.h"
#include "net/binary.h"

namespace slime::engine {
namespace {

constexpr std::chrono::minutes kAnswerLimit{1};

std::pair<int64_t, int64_t> pair_from(std::string_view frame) {
  net::BinaryReader in(frame);
  std::pair<int64_t, int64_t> pair;
  in.get(pair.first);
  in.get(pair.second);
  in.end();
  return pair;
}

template <typename T>
std::vector<T> list_from(std::string_view frame) {
  net::BinaryReader in(frame);
  std::vector<T> list;
  in.get(list);
  in.end();
  return list;
}

}  // namespace

FollowingRank::FollowingRank(int descriptor, const comm::Mesh& mesh,
                             const model::Precision& precision,
                             std::unique_ptr<model::Network> network)
    : channel_(descriptor),
      mesh_(mesh),
      precision_(precision),
      own_(std::move(network)),
      running_(own_.get()) {}

FollowingRank::FollowingRank(int descriptor, const comm::Mesh& mesh,
                             const model::Precision& precision, model::Network& network)
    : channel_(descriptor), mesh_(mesh), precision_(precision), running_(&network) {}

void FollowingRank::follow() {
  const at::NoGradGuard no_grad;
  while (const auto frame = channel_.receive()) carry_out(*frame);
}

StepRunner& FollowingRank::runner() {
  if (!runner_) throw net::FrameError("a step comes before what it is computed with");
  return *runner_;
}

model::Network& FollowingRank::second() {
  if (!own_) throw net::FrameError("weights come for a network of somebody else's");
  if (loader_.joinable()) loader_.join();
  begin_second();
  return *second_;
}

void FollowingRank::begin_second() {
  if (second_) return;
  second_ = running_->adapters() != nullptr
                ? model::with_another_adapter(*running_, precision_, mesh_)
                : model::make_blank_network(running_->config(), precision_, mesh_);
}

void FollowingRank::carry_out(const net::Frame& frame) {
  switch (static_cast<RankOrder>(frame.type)) {
    case RankOrder::kOpen:
      runner_ = make_step_runner(*running_, step_runner_config_from(frame.payload));
      return;
    case RankOrder::kStep:
      // Whether this rank could run ahead does not matter: rank 0 says when it collects.
      static_cast<void>(runner().launch(steps_.chunks_from(frame.payload)));
      return;
    case RankOrder::kCollect:
      return collect(frame.payload);
    case RankOrder::kCopyPage: {
      const auto [from, to] = pair_from(frame.payload);
      return runner().copy_page(static_cast<PageId>(from), static_cast<PageId>(to));
    }
    case RankOrder::kCopyState: {
      const auto [from, to] = pair_from(frame.payload);
      return runner().copy_state(static_cast<StateId>(from), static_cast<StateId>(to));
    }
    case RankOrder::kWeights:
      return take_weights(frame.payload);
    case RankOrder::kLoad:
      return prepare_second([this, directory = frame.payload] { load(directory); });
    case RankOrder::kChange:
      return prepare_second([this] {
        begin_second();
        second_->weights().copy_from(running_->weights());
      });
    case RankOrder::kConstants:
      return take_constants(frame.payload);
    case RankOrder::kCopyWeights: {
      model::Weights& fresh = second().trained();
      wait_for_copies(fresh.flat().device());
      runner().copy_weights(fresh.buffers());
      static_cast<void>(runner().wait_for_weights());  // they may be written to next
      return;
    }
    case RankOrder::kExchange:
      take_constants(frame.payload);
      return exchange();
    case RankOrder::kChecksums: {
      net::BinaryReader in(frame.payload);
      bool resets = false;
      in.get(resets);
      in.end();
      static_cast<void>(checksums_of_rank(running_->trained(), resets, mesh_.tp()));
      return;
    }
    case RankOrder::kForgetLaunched:
      steps_.forget();
      return runner().reset();
    case RankOrder::kRelease:
      runner().release_memory();
      return mesh_.tp().barrier(kReleasing);
    case RankOrder::kResume:
      return runner().resume_memory();
    case RankOrder::kLoadAdapter:
      return answer(
          [&] { load_adapter_on_ranks(*running_, frame.payload, mesh_, /*followers=*/nullptr); });
    case RankOrder::kOpenAdapters:
      return adapters_.open(*running_, mesh_, frame.payload);
    case RankOrder::kReadAdapter:
      return prepare([this, directory = frame.payload] { adapters_.read(directory); });
    case RankOrder::kChangeAdapters:
      if (loader_.joinable()) loader_.join();
      return adapters_.change(*running_, frame.payload);
    default:
      throw net::FrameError(fmt::format("an order of type {} came", frame.type));
  }
}

void FollowingRank::collect(std::string_view frame) {
  const std::vector<TokenId> told = list_from<TokenId>(frame);
  const auto sampled = runner().collect();
  check_peers(mesh_.tp());
  if (sampled.size() != told.size()) throw net::FrameError("a step has another number of chunks");
  for (std::size_t i = 0; i < told.size(); ++i) {
    const TokenId own = sampled[i] ? sampled[i]->id : kPendingToken;
    if (own != told[i]) {
      throw comm::GroupError(
          fmt::format("rank {} of the engine drew token {} where rank 0 drew {}: their weights or "
                      "their kernels differ",
                      mesh_.at().tp, own, told[i]));
    }
  }
}

void FollowingRank::take_weights(std::string_view frame) {
  const WeightPiece piece = weight_piece_from(frame);
  model::Weights& fresh = second().trained();
  if (static_cast<int64_t>(piece.total_bytes) != model::whole_bytes(fresh))
    throw net::FrameError("the weights that come are of another model");
  model::write_whole_(fresh, static_cast<int64_t>(piece.offset), piece.bytes);
}

void FollowingRank::take_constants(std::string_view frame) {
  const std::vector<float> constants = list_from<float>(frame);
  Tensor own_C = second().trained().flat_constants();
  if (static_cast<int64_t>(constants.size()) != own_C.numel())
    throw net::FrameError("the constants that come are of another model");
  own_C.copy_(at::tensor(constants, at::kFloat));
}

void FollowingRank::exchange() {
  model::Network& fresh = second();
  wait_for_copies(fresh.trained().flat().device());
  runner().exchange_network(fresh);
  runner().wait_for_weights();  // the network before is written to next
  std::swap(own_, second_);
  running_ = own_.get();
}

void FollowingRank::load(const std::filesystem::path& directory) {
  // A GPU has no room for a third network; codes are made of numbers, as rank 0 does.
  const bool is_copied = precision_.device.is_cuda() || running_->weights().has_formats();
  std::unique_ptr<model::Network> loaded = model::load_network(
      directory,
      is_copied ? model::Precision{.weights = precision_.weights, .activations = at::kFloat}
                : precision_,
      mesh_, model::draft_layers_of(running_->config()));
  if (loaded->weights().num_parameters() != running_->weights().num_parameters())
    throw ConfigError(directory.string() + ": is another model than the running one");
  if (!is_copied) {
    second_ = std::move(loaded);
  } else {
    begin_second();
    second_->weights().copy_from(loaded->weights());
  }
}

void FollowingRank::answer(const std::function<void()>& body) {
  std::string why;
  try {
    body();
  } catch (const std::exception& error) {
    why = text_of(error);
  }
  // A rank 0 that does not take it is gone, and the connection says so.
  static_cast<void>(channel_.send(static_cast<uint32_t>(RankOrder::kAnswer), why, kAnswerLimit));
}

void FollowingRank::prepare(std::function<void()> body) {
  if (loader_.joinable()) loader_.join();
  loader_ = std::jthread([this, body = std::move(body)] {
    const at::NoGradGuard no_grad;
    answer(body);
  });
}

void FollowingRank::prepare_second(std::function<void()> body) {
  if (!own_) throw net::FrameError("weights come for a network of somebody else's");
  prepare([this, body = std::move(body)] {
    body();
    if (second_) wait_for_copies(second_->weights().flat().device());
  });
}

}  // namespace slime::engine
