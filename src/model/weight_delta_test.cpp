#include "model/weight_delta.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/error.h"
#include "model/network.h"
#include "model/safetensors.h"
#include "model/weight_checksums.h"

namespace slime::model {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Network> small_network(const std::string& dtype) {
  return load_network(std::filesystem::path(SLIME_SOURCE_DIR) / "tests/fixtures/models/qwen3",
                      Precision::of(dtype));
}

/// One of `every` weights moves by a little.
Tensor moved(const Tensor& flat_N, int64_t every, uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  const Tensor moves = at::empty({flat_N.size(0)}, at::kInt).random_(0, every, generator) == 0;
  return at::where(moves, flat_N * 1.01, flat_N).to(flat_N.scalar_type());
}

bool same_bytes(const Tensor& a, const Tensor& b) { return checksum_of(a) == checksum_of(b); }

/// Into `network`, which has what the delta begins with.
void apply_all(const WeightDelta& delta, Network& network) {
  for (const TensorDelta& tensor : delta.tensors) {
    const Expected<void> done = apply(tensor, network.weights());
    ASSERT_TRUE(done) << done.error().message;
  }
}

TEST(WeightDelta, OldWeightsAndADeltaAreTheNewOnesBitForBit) {
  for (const char* dtype : {"bfloat16", "float16", "float32", "float64"}) {
    for (const DeltaEncoding encoding : {DeltaEncoding::kXor, DeltaEncoding::kOverwrite}) {
      for (const int64_t every : {1, 3, 50, 1'000'000}) {
        SCOPED_TRACE(fmt::format("{} {} {}", dtype, static_cast<int>(encoding), every));
        const auto network = small_network(dtype);
        const Tensor flat_N = network->weights().flat();
        const Tensor new_N = moved(flat_N, every, 5);
        const WeightDelta delta = make_delta(network->weights(), flat_N, new_N, encoding);
        EXPECT_LE(delta.num_changed, delta.num_elements);
        EXPECT_LE(delta.num_bytes(), static_cast<int64_t>(flat_N.nbytes())) << "at worst the whole";
        apply_all(delta, *network);
        EXPECT_TRUE(same_bytes(network->weights().flat(), new_N));
      }
    }
  }
}

TEST(WeightDelta, WhatDidNotChangeIsNotInIt) {
  const auto network = small_network("bfloat16");
  const Tensor flat_N = network->weights().flat();
  EXPECT_TRUE(
      make_delta(network->weights(), flat_N, flat_N.clone(), DeltaEncoding::kXor).tensors.empty());
  const Tensor new_N = flat_N.clone();
  Tensor second = Weights::view(new_N, network->weights().tensors()[1]).flatten();
  second[3] = 7;
  second[4] = 8;
  const WeightDelta delta =
      make_delta(network->weights(), flat_N, new_N, DeltaEncoding::kOverwrite);
  ASSERT_EQ(delta.tensors.size(), 1u);
  EXPECT_EQ(delta.tensors[0].tensor, 1u);
  EXPECT_EQ(delta.num_changed, 2);
  // Three stay, two follow, of two bytes each.
  EXPECT_EQ(delta.tensors[0].bytes, std::string("\x03\x02\xE0\x40\x00\x41", 6));
}

TEST(WeightDelta, ZerosOfTwoSignsAndNumbersThatAreNoneTravel) {
  const auto network = small_network("float32");
  const Tensor flat_N = network->weights().flat();
  const Tensor new_N = flat_N.clone();
  new_N[0] = -0.0;
  new_N[1] = std::numeric_limits<double>::quiet_NaN();
  flat_N[0] = 0.0;
  apply_all(make_delta(network->weights(), flat_N, new_N, DeltaEncoding::kXor), *network);
  EXPECT_TRUE(same_bytes(flat_N, new_N));
}

TEST(WeightDelta, OnOtherWeightsThanItBeginsWithItIsRefused) {
  const auto network = small_network("bfloat16");
  const Tensor flat_N = network->weights().flat();
  const WeightDelta delta =
      make_delta(network->weights(), flat_N, moved(flat_N, 20, 1), DeltaEncoding::kXor);
  Tensor(flat_N).add_(1);
  const Expected<void> refused = apply(delta.tensors[0], network->weights());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              HasSubstr(network->weights().tensors()[0].name + ": what its change leads to"));
}

TEST(WeightDelta, DamagedBytesAreRefusedAndNeverWrittenBehindTheTensor) {
  const auto network = small_network("bfloat16");
  Weights& weights = network->weights();
  const Tensor flat_N = weights.flat();
  const Tensor rest_N = flat_N.clone();
  for (const auto form :
       {TensorDelta::Form::kXor, TensorDelta::Form::kOverwrite, TensorDelta::Form::kWhole}) {
    for (const std::string& bytes :
         {std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01", 11), std::string("\x80"),
          std::string("\x01"), std::string("\x00\xff\xff\xff\x7f", 5),
          std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x01", 11),
          std::string(7, '\x01')}) {
      EXPECT_FALSE(apply({.tensor = 0, .form = form, .checksum = 1, .bytes = bytes}, weights));
    }
  }
  EXPECT_FALSE(apply({.tensor = 100'000, .bytes = ""}, weights));
  const int64_t first = weights.tensors()[1].offset;
  EXPECT_TRUE(same_bytes(flat_N.slice(0, first), rest_N.slice(0, first)));
}

TEST(WeightDelta, AFileHasAllOfIt) {
  const auto directory =
      std::filesystem::temp_directory_path() / fmt::format("slime_weight_delta_{}", ::getpid());
  std::filesystem::create_directories(directory);
  const auto network = small_network("bfloat16");
  const Tensor flat_N = network->weights().flat();
  const Tensor new_N = moved(flat_N, 30, 2);
  const WeightDelta delta =
      make_delta(network->weights(), flat_N, new_N, DeltaEncoding::kOverwrite);
  write_delta(delta, network->weights(), directory, 8, 7);
  apply_all(read_delta(directory, network->weights()), *network);
  EXPECT_TRUE(same_bytes(flat_N, new_N));
  write_file(directory / "delta.json", R"({"tensors": {}})");
  EXPECT_THROW(read_delta(directory, network->weights()), ConfigError);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace slime::model
