#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "acceptance/report.h"

namespace slime::acceptance {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<Figure> figures() {
  return {{.section = "device", .what = "device", .kind = Figure::Kind::kTold, .text = "gfx942"},
          {.section = "kernels", .what = "rms_norm", .value = 1e-7, .most = 2e-6},
          {.section = "kernels", .what = "swiglu", .value = 0.5, .most = 2e-6},
          {.section = "graphs",
           .what = "the process of this section",
           .kind = Figure::Kind::kProblem,
           .text = "ended by signal 6"}};
}

const ReportHead kHead{
    .version = "0.5.0", .device = "hip", .is_quick = true, .date = "2026-11-30", .minutes = 12.34};

TEST(CheckReport, HasALineForEachFigureAndWhatDiffersAtItsTop) {
  EXPECT_EQ(report_text(kHead, figures()),
            "# slime check --device hip --quick\n"
            "\n"
            "slime 0.5.0, 2026-11-30, 12.3 minutes: 3 figures, 2 differ.\n"
            "\n"
            "## What differs\n"
            "\n"
            "| figure | value | at most | |\n"
            "| --- | --- | --- | --- |\n"
            "| swiglu | 5.00e-01 | 2.00e-06 | **differs** |\n"
            "| the process of this section | ended by signal 6 | | **differs** |\n"
            "\n"
            "## device\n"
            "\n"
            "| figure | value | at most | |\n"
            "| --- | --- | --- | --- |\n"
            "| device | gfx942 | | |\n"
            "\n"
            "## kernels\n"
            "\n"
            "| figure | value | at most | |\n"
            "| --- | --- | --- | --- |\n"
            "| rms_norm | 1.00e-07 | 2.00e-06 | ok |\n"
            "| swiglu | 5.00e-01 | 2.00e-06 | **differs** |\n"
            "\n"
            "## graphs\n"
            "\n"
            "| figure | value | at most | |\n"
            "| --- | --- | --- | --- |\n"
            "| the process of this section | ended by signal 6 | | **differs** |\n");
}

TEST(CheckReport, WithoutADifferenceSaysSo) {
  const std::string text = report_text(kHead, {figures()[1]});
  EXPECT_THAT(text, HasSubstr("1 figure, none differs."));
  EXPECT_THAT(text, Not(HasSubstr("What differs")));
}

TEST(CheckReport, CellsHaveOneLineAndNoPathOfTheMachine) {
  EXPECT_EQ(cell("a | b\nc"), "a / b c");
  EXPECT_EQ(cell("cannot open /home/ada/secret/libamdhip64.so.7: no"),
            "cannot open libamdhip64.so.7: no");
  EXPECT_EQ(cell("1/2 of /"), "1/2 of /");
  EXPECT_EQ(cell("(see /root/x) (/opt/y) at=/srv/z"), "(see x) (y) at=z");
}

}  // namespace
}  // namespace slime::acceptance
