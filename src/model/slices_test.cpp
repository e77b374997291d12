#include "model/slices.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace slime::model {
namespace {

const std::vector<int64_t> kShape{6, 12, 5};

Tensor numbers() { return at::arange(6 * 12 * 5).view(kShape); }

/// Experts 2 and 3; of each two rows of gates and of ups.
const Slices kOfExperts{{0, 2, 4}, {1, 1, 3}, {1, 7, 9}};

TEST(Slices, OfSeveralDimensionsAreTheirProduct) {
  const Tensor own = kOfExperts.of(numbers());
  EXPECT_EQ(kOfExperts.shape(kShape), (std::vector<int64_t>{2, 4, 5}));
  EXPECT_TRUE(own.equal(numbers().narrow(0, 2, 2).index_select(1, at::tensor({1, 2, 7, 8}))));
  const Tensor whole = at::zeros(kShape, at::kLong);
  kOfExperts.place(own, whole);
  EXPECT_TRUE(kOfExperts.of(whole).equal(own));
  EXPECT_EQ(whole.count_nonzero().item<int64_t>(), own.numel());
}

TEST(Slices, ThatTogetherAreAllOfADimensionAreNone) {
  EXPECT_TRUE((Slices{{0, 0, 2}, {0, 2, 6}}.simplified(kShape).is_whole()));
  EXPECT_EQ((Slices{{0, 0, 6}, {2, 1, 5}}.simplified(kShape)), (Slices{{2, 1, 5}}));
  EXPECT_EQ((Slices{{0, 2, 6}, {0, 0, 2}}.simplified(kShape).all().size()), 2U);
  EXPECT_TRUE(Slices(Slice{}).is_whole());
}

TEST(Slices, RunsAreWhatIsInTheWindow) {
  const Tensor whole_N = numbers().view({-1});
  for (const Slices& slices :
       {kOfExperts, Slices(), Slices{{0, 1, 2}, {0, 4, 6}}, Slices{{2, 1, 3}}, Slices{{1, 3, 4}}}) {
    const Tensor own_N = slices.of(numbers()).contiguous().view({-1});
    for (const comm::Range window : {comm::Range{0, 360}, comm::Range{-9, 1}, comm::Range{131, 200},
                                     comm::Range{59, 60}, comm::Range{360, 400}}) {
      const Tensor found_N = at::full_like(own_N, -1);
      slices.for_each_run(kShape, window, [&](const Slices::Run& run) {
        found_N.narrow(0, run.own_begin, run.size)
            .copy_(whole_N.narrow(0, run.whole_begin, run.size));
      });
      const Tensor is_asked = own_N.ge(window.begin).logical_and(own_N.lt(window.end));
      EXPECT_TRUE(found_N.eq(own_N).logical_or(is_asked.logical_not()).all().item<bool>());
      EXPECT_TRUE(found_N.eq(own_N).logical_or(found_N.eq(-1)).all().item<bool>());
    }
  }
}

}  // namespace
}  // namespace slime::model
