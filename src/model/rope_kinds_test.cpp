/// Every kind of rope beside transformers: tests/fixtures/ropes.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "model/network.h"
#include "model/token_batch_for_tests.h"
#include "model/tree_attention.h"
#include "text/packed_files_for_tests.h"

namespace slime::model {
namespace {

const std::filesystem::path kFolder = SLIME_SOURCE_DIR "/tests/fixtures/ropes";

class RopeKinds : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        std::filesystem::temp_directory_path() / ("slime_ropes_" + std::to_string(::getpid()));
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<Network> network_of(const json::object& item) {
    const std::string base(item.at("base").as_string());
    json::object config = read_json_file(kFolder / (base + ".json")).as_object();
    for (const auto& member : item.at("rope").as_object()) config[member.key()] = member.value();
    std::ofstream(directory_ / "config.json") << json_text(config);
    std::filesystem::copy_file(kFolder / (base + ".safetensors"), directory_ / "model.safetensors",
                               std::filesystem::copy_options::overwrite_existing);
    return load_network(directory_, Precision::of("float32"));
  }

  std::filesystem::path directory_;
};

/// Of each token but the first.
std::vector<double> log_probs(Network& network, std::vector<int64_t> ids) {
  const at::NoGradGuard no_grad;
  const auto size = static_cast<int64_t>(ids.size());
  const ModelConfig& config = network.config();
  const bool is_long = config.rotary_switch() > 0 && size > config.rotary_switch();
  TokenBatch batch = sequence_of(ids);
  if (is_long) batch.rotary_row_T += config.max_positions;
  TreeAttention attention(batch);
  const Tensor log_p = network.logits(network.forward(batch, attention)).log_softmax(1);
  std::vector<double> out;
  for (int64_t i = 0; i + 1 < size; ++i) out.push_back(log_p[i][ids[i + 1]].item<double>());
  return out;
}

TEST_F(RopeKinds, GiveTheLogProbsOfTransformersOnBothSidesOfTheOriginalPositions) {
  const json::value golden = text::unpacked_json(kFolder / "cases.json.xz");
  const auto ids = json::value_to<std::vector<int64_t>>(golden.at("ids"));
  for (const json::value& item : golden.at("cases").as_array()) {
    SCOPED_TRACE(std::string(item.at("name").as_string()));
    const std::unique_ptr<Network> network = network_of(item.as_object());
    for (const auto& [length, expected] : item.at("lengths").as_object()) {
      const auto count = static_cast<std::size_t>(std::stoll(std::string(length)));
      const auto wanted = json::value_to<std::vector<double>>(expected);
      const auto found = log_probs(*network, {ids.begin(), ids.begin() + static_cast<long>(count)});
      ASSERT_EQ(found.size(), wanted.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        ASSERT_NEAR(found[i], wanted[i], 2e-4) << "token " << i + 1 << " of " << length;
    }
  }
}

}  // namespace
}  // namespace slime::model
