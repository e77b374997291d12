// Engines whose matrices are codes, of several ranks and in processes of their own: the codes are those of one rank
// and of who sends them, bit for bit, and the tokens are those of one rank.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "comm/unconnected_group.h"
#include "core/temporary_folder.h"
#include "engine/remote/engine_server.h"
#include "engine/remote/remote_engine.h"
#include "engine_rank_cases.h"
#include "engine_rank_threads.h"
#include "model/block_models_for_tests.h"
#include "model/save.h"
#include "model/stored_parts.h"
#include "model/weight_checksums.h"
#include "rank_threads.h"
#include "sync/reshard.h"

namespace slime::engine {
namespace {

using testing::expect_same;
using testing::expected_of;
using testing::greedy_request;
using testing::MakeSlices;
using testing::ParallelEngine;
using testing::Responses;
using testing::some_tokens;
using testing::TestEngine;
using testing::workload;

const model::Precision kPlain{.weights = at::kFloat, .activations = at::kFloat};
const model::Precision kCodes{.weights = at::kFloat,
                              .activations = at::kFloat,
                              .matrices = kernels::MatrixFormat::kFp8Blocks};

/// What is trained: a plain network, which a test changes.
class Trained {
 public:
  explicit Trained(const char* name)
      : config_(golden_models::in_whole_blocks(name)),
        network_(model::make_network(config_, kPlain, 7)) {}

  model::Network& network() { return *network_; }
  void train() {
    const at::NoGradGuard no_grad;
    Tensor(network_->weights().flat()).mul_(1.0625).add_(0.001);
  }
  /// As one rank makes them.
  std::unique_ptr<model::Network> codes() const {
    const at::NoGradGuard no_grad;
    auto codes = model::make_blank_network(config_, kCodes);
    codes->weights().copy_from(network_->weights());
    return codes;
  }
  WeightChecksums checksums() const { return model::checksums_of(codes()->weights()); }
  /// A rank's slices of them, as they are now.
  MakeSlices slices() const {
    auto bytes = std::make_shared<std::string>();
    for (const Tensor& buffer : codes()->weights().buffers().numbers())
      bytes->append(static_cast<const char*>(buffer.const_data_ptr()), buffer.nbytes());
    return [config = config_, bytes](const comm::Mesh& mesh) {
      auto network = model::make_blank_network(config, kCodes, mesh);
      model::write_whole_(network->weights(), 0, *bytes);
      return network;
    };
  }

 private:
  model::ModelConfig config_;
  std::unique_ptr<model::Network> network_;
};

class CodesOfRanks : public ::testing::TestWithParam<const char*> {};

TEST_P(CodesOfRanks, GiveTheTokensOfOneRank) {
  const Trained trained(GetParam());
  TestEngine one(trained.codes(), {});
  const auto requests = workload(317);
  ParallelEngine two(trained.slices(), 2, {.max_prefill_tokens = 20}, 0, kCodes);
  expect_same(two.generate(requests), expected_of(one, requests));
}

TEST_P(CodesOfRanks, HaveTheChecksumsOfOneRank) {
  const Trained trained(GetParam());
  ParallelEngine two(trained.slices(), 2, {}, 0, kCodes);
  const auto checksums = two.engine().check_weights(WeightCheck::kSnapshot);
  ASSERT_TRUE(checksums) << checksums.error().message;
  EXPECT_EQ(*checksums, trained.checksums());
  const auto reset = two.engine().check_weights(WeightCheck::kReset);
  ASSERT_TRUE(reset);
  EXPECT_EQ(differing_tensors(*checksums, *reset).size(), checksums->size());
}

/// The first rank of an engine behind a connection, as a worker serves it.
struct Served {
  Served(Engine& engine, model::Network& running, const comm::Mesh& mesh,
         const std::function<void(std::string_view)>& pass_on = {})
      : second(model::make_blank_network(running.config(), kCodes, mesh)),
        networks{.running = &running,
                 .second = second.get(),
                 .running_handles = {},
                 .second_handles = {}} {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    // Pieces that divide neither numbers nor codes nor factors.
    remote =
        std::make_unique<RemoteEngine>(ends[0], RemoteEngineConfig{.weight_piece_bytes = 10'007});
    EngineServerConfig config;
    config.pass_weights_on = pass_on;
    server = std::make_unique<EngineServer>(engine, ends[1], networks, std::move(config));
    thread = std::jthread([this] {
      try {
        server->serve();
      } catch (const net::FrameError& error) {
        wrong = error.what();
      }
    });
  }
  ~Served() { remote.reset(); }

  std::unique_ptr<model::Network> second;
  TwoNetworks networks;
  std::array<int, 2> ends{};
  std::string wrong;
  std::unique_ptr<RemoteEngine> remote;
  std::unique_ptr<EngineServer> server;
  std::jthread thread;
};

/// Three updates: what was sent, the checksums, and what is drawn then.
void expect_codes_of(Trained& trained, Served& served) {
  Responses responses;
  for (int version = 1; version <= 3; ++version) {
    trained.train();
    const auto published = trained.codes();
    const auto updated =
        served.remote->update_weights({.version = version, .source = FromNetwork{published.get()}});
    ASSERT_TRUE(updated) << updated.error().message;
    EXPECT_EQ(served.remote->last_transfer().bytes, published->weights().num_bytes());
    const auto checksums = served.remote->check_weights(WeightCheck::kChecksum);
    ASSERT_TRUE(checksums) << checksums.error().message;
    EXPECT_EQ(*checksums, trained.checksums());
    TestEngine one(trained.codes(), {});
    GenerateRequest request = greedy_request(some_tokens(40), 12);
    request.rid = "probe-" + std::to_string(version);
    served.remote->submit(request, responses.sink());
    const GenerateUpdate got = responses.wait(request.rid), expected = one.generate(request);
    EXPECT_EQ(got.output_ids, expected.output_ids);
    ASSERT_EQ(got.output_log_probs.size(), expected.output_log_probs.size());
    for (std::size_t t = 0; t < got.output_log_probs.size(); ++t)
      EXPECT_NEAR(got.output_log_probs[t], expected.output_log_probs[t], 1e-4);
  }
}

TEST_P(CodesOfRanks, AreThoseThatAreSentToOneUpdateByUpdate) {
  Trained trained(GetParam());
  TestEngine one(trained.codes(), {});
  Served served(one.engine(), one.network(), comm::Mesh::single());
  expect_codes_of(trained, served);
}

TEST_P(CodesOfRanks, AreThoseThatAreSentToTwoUpdateByUpdate) {
  Trained trained(GetParam());
  ParallelEngine two(trained.slices(), 2, {}, 0, kCodes);
  Served served(two.engine(), two.network(), two.mesh(),
                [&](std::string_view piece) { two.followers().tell(RankOrder::kWeights, piece); });
  expect_codes_of(trained, served);
}

TEST(SentCodes, ArePlainWeightsNowhere) {
  Trained trained("qwen3");
  TestEngine one(trained.codes(), {});
  {
    Served served(one.engine(), one.network(), comm::Mesh::single());
    EXPECT_FALSE(
        served.remote->update_weights({.version = 1, .source = FromNetwork{&trained.network()}}));
    served.thread.join();
    EXPECT_NE(served.wrong.find("the weights that come have"), std::string::npos) << served.wrong;
  }
  EXPECT_EQ(one.engine().weight_version(), 0);
}

/// Each rank makes codes of the numbers that it reads.
TEST_P(CodesOfRanks, AreMadeOfACheckpoint) {
  Trained trained(GetParam());
  const TemporaryFolder folder("codes");
  const MakeSlices before = trained.slices();
  trained.train();
  ParallelEngine two(before, 2, {}, 0, kCodes);
  const std::filesystem::path saved = folder.path() / "saved";
  std::filesystem::create_directory(saved);
  model::save_network(trained.network(), saved);
  const auto updated = two.engine().update_weights({.version = 1, .source = FromDirectory{saved}});
  ASSERT_TRUE(updated) << updated.error().message;
  const auto checksums = two.engine().check_weights(WeightCheck::kChecksum);
  ASSERT_TRUE(checksums) << checksums.error().message;
  EXPECT_EQ(*checksums, trained.checksums());
}

INSTANTIATE_TEST_SUITE_P(Models, CodesOfRanks, ::testing::ValuesIn(golden_models::kBlockModels),
                         golden_models::name_of);

class CodesOfTrainers : public ::testing::TestWithParam<const char*> {};

/// Ranks that train make codes of their slices; engines over them get what one rank would have made.
TEST_P(CodesOfTrainers, ComeToEnginesOfOneAndOfTwoRanks) {
  using comm::ParallelLayout;
  Trained trained(GetParam());
  const model::Weights& whole = trained.network().weights();
  const model::ModelConfig& config = trained.network().config();
  const MakeSlices expected = trained.slices();
  for (const ParallelLayout& layout :
       std::vector<ParallelLayout>{{.tp = 2}, {.pp = 2, .first_layers = 1}}) {
    for (const int size : {1, 2}) {
      SCOPED_TRACE(size);
      parity::on_mesh(layout, [&](const comm::Mesh& mesh) {
        const at::NoGradGuard no_grad;
        const auto mine = model::make_blank_network(config, kPlain, mesh);
        // By name: stages have some of the tensors.
        for (const model::NamedWeight& weight : mine->weights().tensors()) {
          const auto found =
              std::ranges::find(whole.tensors(), weight.name, &model::NamedWeight::name);
          model::Weights::view(mine->weights().flat(), weight)
              .copy_(weight.slices.of(model::Weights::view(whole.flat(), *found)));
        }
        const auto codes = model::make_blank_network(config, kCodes, mesh);
        codes->weights().copy_from(mine->weights());
        const comm::Mesh engine_mesh(
            comm::engine_layout(size), mesh.rank() % size,
            [&](comm::Axis, const std::vector<int>& members) {
              const auto own = std::ranges::find(members, mesh.rank() % size);
              return std::make_unique<comm::UnconnectedGroup>(
                  static_cast<int>(own - members.begin()), static_cast<int>(members.size()));
            });
        const auto engine = model::make_blank_network(config, kCodes, engine_mesh);
        const sync::Reshard reshard(mesh, codes->weights(), engine->weights());
        reshard.run();
        const auto right = expected(engine_mesh);
        EXPECT_TRUE(
            at::equal(engine->weights().buffers().codes_Q, right->weights().buffers().codes_Q));
        EXPECT_TRUE(
            at::equal(engine->weights().buffers().scales_S, right->weights().buffers().scales_S));
        EXPECT_TRUE(at::equal(engine->weights().flat(), right->weights().flat()));
        EXPECT_LT(reshard.bytes_received(), static_cast<int64_t>(whole.flat().nbytes()) / 3)
            << "a quarter of float32, and what stays plain";
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CodesOfTrainers, ::testing::Values("qwen3", "phi3"),
                         golden_models::name_of);

}  // namespace
}  // namespace slime::engine
