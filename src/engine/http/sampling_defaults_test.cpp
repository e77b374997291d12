/// --sampling-defaults model: what generation_config.json fills in.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "engine/http/served_model.h"
#include "engine/http/test_server.h"

namespace slime::engine {
namespace {

namespace fs = std::filesystem;

SamplingParams defaults_of(const std::string& file) {
  const fs::path folder = fs::path(testing::TempDir()) / "sampling_defaults";
  fs::create_directories(folder);
  std::ofstream(folder / "generation_config.json") << file;
  const SamplingParams params = sampling_defaults_of(folder);
  return params;
}

std::string refusal_of(const std::string& file) {
  try {
    defaults_of(file);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

TEST(SamplingDefaults, AreThoseOfTheGenerationConfigWhereARequestIsSilent) {
  TestServer test("Hi");
  test.model.sampling_defaults = defaults_of(
      R"({"temperature":0.6,"top_p":0.95,"top_k":20,"min_p":0.1,"repetition_penalty":1.05,
      "do_sample":true,"eos_token_id":[1,2],"max_length":20})");
  test.post("/generate", R"({"text":"x","sampling_params":{"top_p":0.5}})");
  test.post("/v1/completions", R"({"model":"m","prompt":"x"})");
  const auto requests = test.engine.requests();
  EXPECT_EQ(requests.at(0).sampling.temperature, 0.6);
  EXPECT_EQ(requests[0].sampling.top_p, 0.5);
  EXPECT_EQ(requests[0].sampling.top_k, 20);
  EXPECT_EQ(requests[0].sampling.min_p, 0.1);
  EXPECT_EQ(requests[0].sampling.repetition_penalty, 1.05);
  EXPECT_EQ(requests[0].sampling.max_new_tokens, SamplingParams().max_new_tokens);
  EXPECT_EQ(requests.at(1).sampling.temperature, 0.6);
  EXPECT_EQ(requests[1].sampling.top_p, 0.95);
}

TEST(SamplingDefaults, OutOfRangeAreTheModelsFaultAndNotEachRequests) {
  const std::string told = refusal_of(R"({"temperature":-1,"top_p":1.5,"top_k":0})");
  EXPECT_NE(told.find("generation_config.json: temperature must be"), std::string::npos) << told;
  EXPECT_NE(told.find("generation_config.json: top_p must be"), std::string::npos) << told;
  EXPECT_EQ(told.find("top_k"), std::string::npos) << told;  // transformers' word for "all"
  EXPECT_EQ(refusal_of(R"({"temperature":null})"), "none");
}

TEST(SamplingDefaults, TopPOfZeroIsTheBestTokenAlone) {
  const SamplingParams params = defaults_of(R"({"top_p":0,"temperature":0.7})");
  EXPECT_EQ(params.top_k, 1);
  EXPECT_EQ(params.top_p, 1);
  EXPECT_EQ(refusal_of(R"({"top_p":0,"top_k":0})"), "none");
}

}  // namespace
}  // namespace slime::engine
