#pragma once

/// A rank of an engine that is not its first (engine/ranks/followers.h): its slices of the network, its
/// runner, and the loop that does what rank 0 tells.

#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/mesh.h"
#include "engine/ranks/followers.h"
#include "engine/ranks/mirrored_step.h"
#include "engine/ranks/rank_adapters.h"
#include "engine/step_runner.h"
#include "model/network.h"
#include "net/frame_channel.h"

namespace slime::engine {

/// One class because it is the state of one connection: two networks, their runner and its steps.
class FollowingRank final {
 public:
  /// Owns `descriptor`, a connected stream socket whose other end Followers has. `network`: this rank's
  /// slices, of `precision`. `mesh` outlives the object.
  FollowingRank(int descriptor, const comm::Mesh& mesh, const model::Precision& precision,
                std::unique_ptr<model::Network> network);
  /// The same over a network of somebody else's, who gives it new weights: none come over the
  /// connection. It outlives the object.
  FollowingRank(int descriptor, const comm::Mesh& mesh, const model::Precision& precision,
                model::Network& network);
  FollowingRank(const FollowingRank&) = delete;
  FollowingRank& operator=(const FollowingRank&) = delete;

  /// The second network, which is otherwise made when weights come.
  void make_second() { second(); }
  /// Until rank 0 closes the connection. Throws comm::GroupError when the ranks do not reach one
  /// another or have sampled different tokens, net::FrameError for what no rank 0 sends.
  void follow();

 private:
  void carry_out(const net::Frame& frame);
  StepRunner& runner();
  /// Of the running one's shape, or with another adapter beside its numbers; made when it is needed first.
  model::Network& second();
  void begin_second();
  void collect(std::string_view frame);
  void take_weights(std::string_view frame);
  void take_constants(std::string_view frame);
  void exchange();
  void load(const std::filesystem::path& directory);
  /// Calls it, and answers whether that failed.
  void answer(const std::function<void()>& body);
  /// The same on a thread of its own: steps go on meanwhile.
  void prepare(std::function<void()> body);
  /// Makes the second network so.
  void prepare_second(std::function<void()> body);

  net::FrameChannel channel_;
  const comm::Mesh& mesh_;
  const model::Precision precision_;
  std::unique_ptr<model::Network> own_, second_;  // own_ is null where somebody else's is used
  model::Network* running_;
  std::unique_ptr<StepRunner> runner_;  // null before kOpen
  MirroredSteps steps_;
  FollowingAdapters adapters_;
  std::jthread loader_;  // writes second_, or reads an adapter; joined before that is used
};

}  // namespace slime::engine
