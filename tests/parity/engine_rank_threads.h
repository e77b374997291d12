#pragma once

/// An engine of several ranks, whose ranks are threads of the test, connected as processes are.

#include <sys/socket.h>

#include <array>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "comm/socket_mesh.h"
#include "engine/ranks/followers.h"
#include "engine/ranks/following_rank.h"
#include "engine/ranks/leading_runner.h"
#include "engine/served_adapters.h"
#include "engine_fixture.h"
#include "model/whole_weights.h"

namespace slime::testing {

/// This rank's slices of a model.
using MakeSlices = std::function<std::unique_ptr<model::Network>(const comm::Mesh&)>;

inline MakeSlices slices_of(const std::string& model) {
  return [directory = golden_models::directory(model)](const comm::Mesh& mesh) {
    return model::load_network(directory, model::Precision::of("float32"), mesh);
  };
}

/// A shape of a fixture, made so that four ranks can share it: as many key-value heads as query heads.
/// The vocabulary is not divided.
class FourHeads {
 public:
  explicit FourHeads(const char* fixture)
      : config_(model::read_model_config(golden_models::directory(fixture))) {
    config_.num_kv_heads = config_.num_heads;
    config_.initializer_range = 0.2;
    config_.vocab_size = 317;
    whole_ = model::make_network(config_, model::Precision::of("float32"), 7);
  }
  MakeSlices slices() const {
    return [this](const comm::Mesh& mesh) {
      auto network = model::make_blank_network(config_, model::Precision::of("float32"), mesh);
      const Tensor& flat_N = whole_->weights().flat();
      model::write_whole_(network->weights(), 0,
                          {static_cast<const char*>(flat_N.data_ptr()), flat_N.nbytes()});
      return network;
    };
  }

 private:
  model::ModelConfig config_;
  std::unique_ptr<model::Network> whole_;
};

/// Of one rank, all requests together.
inline std::vector<engine::GenerateUpdate> expected_of(
    TestEngine& bench, const std::vector<engine::GenerateRequest>& requests) {
  for (const auto& request : requests) bench.submit(request);
  std::vector<engine::GenerateUpdate> out;
  for (const auto& request : requests) out.push_back(bench.responses().wait(request.rid));
  return out;
}

class ParallelEngine {
 public:
  /// `served`: so many adapters that requests may name; 0: none. `precision`: of what `make` makes.
  ParallelEngine(const MakeSlices& make, int tp, engine::EngineConfig config = {},
                 int64_t served = 0,
                 const model::Precision& precision = model::Precision::of("float32")) {
    if (config.kv_cache_bytes == engine::EngineConfig{}.kv_cache_bytes)
      config.kv_cache_bytes = 8 << 20;
    std::vector<int> own_ends;
    const int port = rendezvous_.port();
    for (int rank = 1; rank < tp; ++rank) {
      std::array<int, 2> ends{};
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
      own_ends.push_back(ends[0]);
      their_ends_.push_back(ends[1]);
      threads_.emplace_back([make, tp, rank, port, precision, end = ends[1]] {
        try {
          const auto mesh = meet(tp, rank, port, nullptr);
          engine::FollowingRank(end, *mesh, precision, make(*mesh)).follow();
        } catch (const comm::GroupError&) {  // what the first rank makes of it is what is tested
        }
      });
    }
    mesh_ = meet(tp, 0, port, &rendezvous_);
    network_ = make(*mesh_);
    followers_ = std::make_unique<engine::Followers>(own_ends);
    config.mesh = mesh_.get();
    if (served > 0) {
      adapters_ =
          std::make_unique<engine::ServedAdapters>(*network_, served, *mesh_, followers_.get());
      config.adapters = adapters_.get();
    }
    engine_ = std::make_unique<engine::Engine>(
        *network_, config, clock_,
        [this](model::Network& network, const engine::StepRunnerConfig& steps) {
          return std::make_unique<engine::LeadingRunner>(engine::make_step_runner(network, steps),
                                                         *followers_, mesh_->tp(), steps);
        });
    if (!adapters_) return;
    adapters_->change_with(*engine_);
  }
  ~ParallelEngine() {
    engine_.reset();
    followers_.reset();
    for (std::thread& thread : threads_) thread.join();
  }
  ParallelEngine(const ParallelEngine&) = delete;
  ParallelEngine& operator=(const ParallelEngine&) = delete;

  engine::Engine& engine() { return *engine_; }
  model::Network& network() { return *network_; }
  const comm::Mesh& mesh() { return *mesh_; }
  engine::Followers& followers() { return *followers_; }
  engine::ServedAdapters& adapters() { return *adapters_; }
  Responses& responses() { return responses_; }
  /// What follower `rank` reads ends here.
  void cut_off(int rank) { ::shutdown(their_ends_.at(rank - 1), SHUT_RDWR); }

  void submit(engine::GenerateRequest request) {
    engine_->submit(std::move(request), responses_.sink());
  }
  /// The engine pauses behind the step that draws the request's `count`th token: it goes on only when
  /// the test says so.
  void submit_pausing(engine::GenerateRequest request, int count, engine::PauseMode mode) {
    engine_->submit(std::move(request), [this, left = count, mode, sink = responses_.sink()](
                                            engine::GenerateUpdate update) mutable {
      const int before = left;
      left -= static_cast<int>(update.output_ids.size());
      if (before > 0 && left <= 0) static_cast<void>(engine_->pause(mode));
      sink(std::move(update));
    });
  }
  void submit_and_pause(const engine::GenerateRequest& request, int count, engine::PauseMode mode) {
    submit_pausing(request, count, mode);
    responses_.wait_for_tokens(request.rid, static_cast<std::size_t>(count));
  }
  engine::GenerateUpdate generate(const engine::GenerateRequest& request) {
    submit(request);
    return responses_.wait(request.rid);
  }
  /// All of them are there when the first step is planned.
  std::vector<engine::GenerateUpdate> generate(
      const std::vector<engine::GenerateRequest>& requests) {
    EXPECT_TRUE(engine_->pause(engine::PauseMode::kInPlace));
    for (const auto& request : requests) submit(request);
    EXPECT_TRUE(engine_->resume());
    std::vector<engine::GenerateUpdate> out;
    for (const auto& request : requests) out.push_back(responses_.wait(request.rid));
    return out;
  }

 private:
  static std::unique_ptr<comm::Mesh> meet(int tp, int rank, int port,
                                          comm::Rendezvous* rendezvous) {
    return comm::make_socket_mesh({.rank = rank,
                                   .layout = comm::engine_layout(tp),
                                   .port = port,
                                   .connect_timeout = std::chrono::seconds(60),
                                   .timeout = std::chrono::seconds(60)},
                                  rendezvous);
  }

  SystemClock clock_;
  comm::Rendezvous rendezvous_;
  std::vector<int> their_ends_;
  std::vector<std::thread> threads_;
  std::unique_ptr<comm::Mesh> mesh_;
  std::unique_ptr<model::Network> network_;
  std::unique_ptr<engine::Followers> followers_;
  std::unique_ptr<engine::ServedAdapters> adapters_;
  Responses responses_;
  std::unique_ptr<engine::Engine> engine_;
};

}  // namespace slime::testing
