#include "sandbox/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json.h"
#include "sandbox/for_tests.h"
#include "sandbox/service.h"

namespace slime::sandbox {
namespace {

using testing::HasSubstr;

class ProgramTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto& why = no_bubblewrap()) GTEST_SKIP() << *why;
  }
};

TEST_F(ProgramTest, RunsInEachLanguage) {
  Sandbox sandbox;
  const auto output = [&](Language language, const char* code) {
    const ProgramOutcome outcome = run_program(
        sandbox, {.language = language, .code = code, .arguments = {"3"}, .input = "4"});
    EXPECT_TRUE(outcome.run.is_success()) << outcome.run.reason << outcome.run.error;
    return outcome.run.output;
  };
  EXPECT_EQ(output(Language::kPython, "import sys\nprint(int(sys.argv[1]) * int(input()))"),
            "12\n");
  EXPECT_EQ(output(Language::kShell, "read n; echo $(($1 * n))"), "12\n");
  EXPECT_EQ(output(Language::kCpp, R"(#include <cstdlib>
#include <iostream>
int main(int, char** words) { int n; std::cin >> n; std::cout << std::atoi(words[1]) * n << "\n"; })"),
            "12\n");
}

TEST_F(ProgramTest, WhatDoesNotCompileDoesNotRun) {
  Sandbox sandbox;
  const ProgramOutcome outcome =
      run_program(sandbox, {.language = Language::kCpp, .code = "int main() { return x; }"});
  EXPECT_FALSE(outcome.is_built());
  EXPECT_EQ(outcome.run.code, 1);
  EXPECT_THAT(outcome.run.error, HasSubstr("main.cpp:1"));
}

TEST_F(ProgramTest, AnErrorOfPythonIsInItsErrorOutput) {
  Sandbox sandbox;
  const ProgramOutcome outcome = run_program(sandbox, {.code = "1 / 0"});
  EXPECT_EQ(outcome.run.code, 1);
  EXPECT_THAT(outcome.run.error, HasSubstr("ZeroDivisionError"));
}

TEST_F(ProgramTest, ACaseIsPassedByTheRightAnswerAlone) {
  Sandbox sandbox;
  const std::vector<Case> cases{{"1 2", "3"}, {"10 20", "30"}};
  const auto passed = [&](const std::string& code) {
    std::string marks;
    for (const auto& each : judge(sandbox, {.code = code}, cases).cases)
      marks += each.is_passed ? '1' : '0';
    return marks;
  };
  EXPECT_EQ(passed("print(sum(map(int, input().split())))"), "11");
  EXPECT_EQ(passed("print(3)"), "10");
  EXPECT_EQ(passed("print('PASS')\nprint({'passed': True})"), "00");
  EXPECT_EQ(passed("import sys\nprint(sum(map(int, input().split())))\nsys.exit(1)"), "00");
  // What is expected is nowhere in there: every file, argument and variable printed has no "30".
  EXPECT_EQ(passed("import glob\nfor name in glob.glob('/proc/[0-9]*/*') + glob.glob('/work/*'):\n"
                   "  try: print(open(name, 'rb').read())\n  except OSError: pass"),
            "00");
}

/// What is left of the first case writes until nobody reads it: to its own case, however late that one is
/// found to have ended, and never to the second, which says nothing for a second.
TEST_F(ProgramTest, ALeftProcessCannotAnswerForALaterCase) {
  Sandbox sandbox;
  const Judgement judgement = judge(sandbox, {.code = R"(
import os, time
if input() == "wait":
    time.sleep(1)
elif (parent := os.getpid()) and os.fork() == 0:
    os.setsid()
    while os.getppid() == parent:
        time.sleep(0.01)
    while True:
        print("5", flush=True)
        time.sleep(0.01)
)"},
                                    {{"leave", "5"}, {"wait", "5"}});
  ASSERT_EQ(judgement.cases.size(), 2U);
  EXPECT_TRUE(judgement.cases[0].outcome.is_success()) << judgement.cases[0].outcome.reason;
  EXPECT_TRUE(judgement.cases[1].outcome.is_success()) << judgement.cases[1].outcome.reason;
  EXPECT_EQ(judgement.cases[1].outcome.output, "");
  EXPECT_FALSE(judgement.cases[1].is_passed);
}

TEST(SameOutput, ForgivesWhiteSpaceAtEndsAlone) {
  EXPECT_TRUE(same_output("1 2 \n3\n\n", "1 2\n3"));
  EXPECT_TRUE(same_output("", " \n"));
  EXPECT_TRUE(same_output("a\r\nb\r\n", "a\nb"));
  EXPECT_FALSE(same_output("1  2", "1 2"));
  EXPECT_FALSE(same_output("1\n\n2", "1\n2"));
  EXPECT_FALSE(same_output("1\n2", "1"));
  EXPECT_FALSE(same_output("1", "1\n2"));
  EXPECT_FALSE(same_output(" 1", "1"));
}

json::object ask(Service& service, const char* request) {
  return service.answer(parse_json(request, "request").as_object());
}

TEST_F(ProgramTest, TheServiceRunsAndJudges) {
  Service service({});
  const json::object ran = ask(
      service, R"_({"id": "a", "do": "run", "code": "print(6 * 7)", "limits": {"seconds": 5}})_");
  EXPECT_EQ(ran.at("id"), json::value("a"));
  EXPECT_EQ(ran.at("ending"), json::value("exited"));
  EXPECT_EQ(ran.at("output"), json::value("42\n"));
  const json::object judged =
      ask(service, R"({"do": "run", "language": "sh", "code": "cat", "cases":
      [{"input": "1", "expected": "1"}, {"input": "2", "expected": "3"}]})");
  EXPECT_EQ(judged.at("passed"), json::value(1));
  EXPECT_EQ(judged.at("cases").at(0).at("passed"), json::value(true));
  EXPECT_EQ(judged.at("cases").at(1).at("passed"), json::value(false));
}

TEST_F(ProgramTest, TheServiceKeepsASandboxUntilItIsClosed) {
  Service service({});
  EXPECT_EQ(ask(service, R"({"do": "open"})").at("sandbox"), json::value(1));
  EXPECT_EQ(ask(service, R"({"do": "write", "sandbox": 1, "path": "/work/f", "bytes": "a\u00ff"})"),
            json::object{});
  const json::object done = ask(service, R"({"do": "exec", "sandbox": 1, "words":
      ["sh", "-c", "wc -c < f; echo $NAME; printf '\\377'"], "environment": {"NAME": "x"}})");
  EXPECT_EQ(done.at("output"), json::value("2\nx\n\xef\xbf\xbd"));
  EXPECT_EQ(ask(service, R"({"do": "read", "sandbox": 1, "path": "/work/f"})").at("bytes"),
            json::value("a\xc3\xbf"));
  EXPECT_EQ(ask(service, R"({"do": "close", "sandbox": 1})"), json::object{});
  EXPECT_EQ(ask(service, R"({"do": "exec", "sandbox": 1, "words": ["true"]})").at("problem"),
            json::value("sandbox 1: is not open"));
}

TEST(SandboxService, RefusesWhatItCannotRead) {
  Service service({});
  for (const auto& [request, says] :
       {std::pair{R"({"do": "dance"})", "do must be"},
        {R"({"do": "run"})", "code is missing"},
        {R"({"do": "run", "code": "", "language": "cobol"})", "language cobol: should be"},
        {R"({"do": "run", "code": "", "limits": {"second": 1}})", "did you mean seconds"},
        {R"({"do": "run", "code": "", "limits": {"seconds": 1e9}})", "limits.seconds must be"},
        {R"({"do": "close"})", "sandbox is missing"},
        {R"({"do": "write", "path": "x", "bytes": "\u20ac"})", "none is above U+00FF"}}) {
    EXPECT_THAT(std::string(ask(service, request).at("problem").as_string()), HasSubstr(says));
  }
}

}  // namespace
}  // namespace slime::sandbox
