#include "acceptance/figure.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.h"

namespace slime::acceptance {
namespace {

Figure compared(double value, double most) {
  return {.section = "kernels", .what = "rms_norm", .value = value, .most = most};
}

TEST(Figures, DifferAboveTheirLimitAndWhereThereIsNoNumber) {
  EXPECT_FALSE(differs(compared(1e-6, 1e-6)));
  EXPECT_TRUE(differs(compared(1.1e-6, 1e-6)));
  EXPECT_TRUE(differs(compared(std::nan(""), 1e-6)));
  EXPECT_TRUE(differs(compared(std::numeric_limits<double>::infinity(), 1e-6)));
  EXPECT_TRUE(differs({.section = "a", .what = "b", .kind = Figure::Kind::kProblem, .text = "c"}));
  EXPECT_FALSE(differs({.section = "a", .what = "b", .kind = Figure::Kind::kTold, .text = "c"}));
  EXPECT_TRUE(has_difference({compared(0, 0), compared(1, 0)}));
  EXPECT_FALSE(has_difference({compared(0, 0)}));
}

TEST(Figures, AreTheSameBehindAPipe) {
  const Figure told{
      .section = "device", .what = "memory", .kind = Figure::Kind::kTold, .text = "139 GiB"};
  const Figure back = figure_of(to_json(told));
  EXPECT_EQ(back.section, "device");
  EXPECT_EQ(back.what, "memory");
  EXPECT_EQ(back.kind, Figure::Kind::kTold);
  EXPECT_EQ(back.text, "139 GiB");
  const Figure measured = figure_of(to_json(compared(0.125, 0.5)));
  EXPECT_EQ(measured.value, 0.125);
  EXPECT_EQ(measured.most, 0.5);
  EXPECT_TRUE(differs(figure_of(to_json(compared(std::nan(""), 1)))));
}

TEST(Figures, ObjectsThatAreNoneAreRefused) {
  EXPECT_THROW(figure_of({{"section", "a"}, {"what", "b"}}), ConfigError);
  EXPECT_THROW(figure_of({{"section", "a"}, {"what", "b"}, {"kind", "compared"}}), ConfigError);
  EXPECT_THROW(figure_of({{"section", "a"}, {"what", "b"}, {"kind", "fine"}, {"text", ""}}),
               ConfigError);
}

}  // namespace
}  // namespace slime::acceptance
