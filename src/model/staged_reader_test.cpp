#include "model/staged_reader.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "core/error.h"
#include "core/temporary_folder.h"
#include "kernels/gpu/for_tests.h"
#include "kernels/gpu/gpu.h"

namespace slime::model {
namespace {

TEST(StagedBlocks, HoldEachElementOnce) {
  const std::vector<StagedSize> sizes{{5, 4}, {0, 4}, {100, 4}, {3, 2}, {9, 8}};
  const auto blocks = staged_blocks(sizes, 64);
  std::vector<int64_t> seen(sizes.size());
  for (const auto& block : blocks) {
    int64_t used = 0;
    ASSERT_FALSE(block.empty());
    for (const StagedPiece& piece : block) {
      EXPECT_EQ(piece.begin, seen[piece.tensor]) << "in order";
      EXPECT_LT(piece.begin, piece.end);
      EXPECT_EQ(piece.offset % 16, 0);
      EXPECT_GE(piece.offset, used);
      used = piece.offset + (piece.end - piece.begin) * sizes[piece.tensor].width;
      EXPECT_LE(used, 64);
      seen[piece.tensor] = piece.end;
    }
  }
  for (size_t i = 0; i < sizes.size(); ++i) EXPECT_EQ(seen[i], sizes[i].elements);
  EXPECT_TRUE(staged_blocks({}, 64).empty());
}

/// A file of three tensors, read by blocks that are smaller than each of them, and fewer than there are pieces.
class StagedReading : public ::testing::Test {
 protected:
  static constexpr StagedOptions kSmall{.num_blocks = 3, .block_bytes = 256, .num_threads = 4};

  std::filesystem::path write(at::ScalarType stored) const {
    auto path = folder_.path() / (std::string(c10::toString(stored)) + ".safetensors");
    write_safetensors(path, {{"a", a_}, {"b", b_}, {"c", c_}}, stored);
    return path;
  }

  void expect_what_is_stored(const at::Device& device) const {
    StagedReader reader(device, kSmall);
    const Slices columns{{1, 4, 9}, {1, 12, 20}}, both{{0, 1, 3}, {1, 0, 2}};
    for (const auto stored : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
      const SafetensorsFile file(write(stored));
      for (const auto wanted : {at::kFloat, at::kDouble}) {
        const auto options = at::TensorOptions(device).dtype(wanted);
        const auto tensor = [&](const char* name, const Slices& slices) {
          const StoredTensor& of_file = file.tensors().at(name);
          return StagedTensor{&file, of_file, slices,
                              at::full(slices.shape(of_file.shape), -7, options)};
        };
        std::vector<StagedTensor> tensors{tensor("a", {}), tensor("b", columns), tensor("b", both),
                                          tensor("c", {})};
        // The same elements under another shape, of which a slice is taken.
        StagedTensor turned{&file, file.tensors().at("a"), Slice{0, 1, 2},
                            at::full({1, 20, 37}, -7, options)};
        turned.stored.shape = {2, 20, 37};
        tensors.push_back(turned);
        reader.read(tensors);
        const auto expect = [&](size_t i, const Tensor& whole, const Slices& slices) {
          const Tensor own = slices.of(whole.to(stored).to(wanted));
          EXPECT_TRUE(tensors[i].to.cpu().equal(own.contiguous()))
              << c10::toString(stored) << " to " << c10::toString(wanted) << ", " << i;
        };
        expect(0, a_, {});
        expect(1, b_, columns);
        expect(2, b_, both);
        expect(3, c_, {});
        expect(4, a_.view({2, 20, 37}), Slice{0, 1, 2});
      }
    }
  }

  const TemporaryFolder folder_{"slime-staged"};
  const Tensor a_ = at::randn({40, 37}), b_ = at::randn({33, 21}), c_ = at::zeros({0, 4});
};

TEST_F(StagedReading, BringsWhatIsStored) { expect_what_is_stored(at::kCPU); }

TEST_F(StagedReading, GpuHasWhatIsStored) {
  SLIME_NEEDS_GPU();
  kernels::open_gpu();
  expect_what_is_stored(at::Device(at::kCUDA, 0));
}

TEST_F(StagedReading, OfAFileThatBecameShorterIsAnErrorAndTheReaderGoesOn) {
  StagedReader reader(at::kCPU, kSmall);
  const auto path = write(at::kFloat);
  const SafetensorsFile file(path);
  const std::vector<StagedTensor> tensors{{&file, file.tensors().at("a"), {}, at::zeros({40, 37})}};
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 4000);
  try {
    reader.read(tensors);
    FAIL() << "numbers that are not there were read";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("ends at byte"));
  }
  const auto again = write(at::kHalf);
  const SafetensorsFile other(again);
  reader.read({{&other, other.tensors().at("a"), {}, tensors.front().to}});
  EXPECT_TRUE(tensors.front().to.equal(a_.to(at::kHalf).to(at::kFloat)));
}

TEST_F(StagedReading, OfNothingIsDoneAtOnce) {
  StagedReader reader(at::kCPU, kSmall);
  reader.read({});
}

}  // namespace
}  // namespace slime::model
