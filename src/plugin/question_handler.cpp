#include "plugin/question_handler.h"

#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>

#include "core/error.h"
#include "net/frame_channel.h"
#include "reward/score_record.h"
#include "setup/scores.h"

namespace slime::plugin {
namespace {

bool is_about_prompts(std::string_view what) {
  return what == "get_samples" || what == "add_samples" || what == "num_prompts" ||
         what == "buffer_length";
}

Expected<ReplyValue> answer_of(const QuestionHandler::AnswerPrompts& prompts,
                               const Question& question) {
  try {
    return prompts(question);
  } catch (const ConfigError& error) {
    return failure(error.what());
  } catch (const net::FrameError& error) {
    return failure(error.what());
  }
}

}  // namespace

QuestionHandler::QuestionHandler(const config::RunConfig& config) : config_(config) {}

QuestionHandler::~QuestionHandler() {
  if (!scores_) return;
  scores_->stop();
  scores_->join();
}

void QuestionHandler::take(Question question, ReplyFn reply) {
  if (question.what == "score") {
    std::call_once(has_threads_, [this] {
      scores_ = std::make_unique<boost::asio::thread_pool>(
          static_cast<std::size_t>(setup::num_reward_threads(config_)));
    });
    boost::asio::post(*scores_, [this, question = std::move(question), reply = std::move(reply)] {
      score(question, reply);
    });
  } else if (question.what == "log") {
    try {
      logged_.add(question.arguments);
      reply(ReplyValue{.value = json::object()});
    } catch (const net::FrameError& error) {
      reply(failure(error.what()));
    }
  } else if (is_about_prompts(question.what)) {
    const std::lock_guard lock(mutex_);
    if (num_answering_ == 0)
      return reply(failure(fmt::format("{}: no function may take prompts now", question.what)));
    waiting_.push_back({std::move(question), std::move(reply)});
    changed_.notify_all();
  } else {
    reply(failure(fmt::format("the program answers no question {}", question.what)));
  }
}

void QuestionHandler::score(const Question& question, const ReplyFn& reply) const {
  const json::value* rule = question.arguments.if_contains("rule");
  if (rule == nullptr || !rule->is_string()) return reply(failure("score: needs a rule"));
  try {
    json::object line = question.arguments;
    for (const char* own : {"id", "what", "rule"}) line.erase(own);
    const reward::Scoring how{.type = std::string(rule->get_string()),
                              .config = setup::reward_config(config_),
                              .reward_key = ""};
    reply(ReplyValue{.value = reward::score_record(line, 0, how, "score")});
  } catch (const ConfigError& error) {
    reply(failure(error.what()));
  }
}

Expected<Payload> QuestionHandler::call(Hosts& hosts, Call call, const AnswerPrompts& prompts,
                                        const StopFlags& stop) {
  constexpr std::chrono::milliseconds kLook{100};  // at `stop`
  std::stop_source given_up;
  if (stop.may_stop()) call.stop = given_up.get_token();
  const auto returned = std::make_shared<std::optional<Expected<Payload>>>();
  call.answer = [this, returned](const Expected<Answer>& answer) {
    const std::lock_guard lock(mutex_);
    *returned = answer
                    ? Expected<Payload>(Payload{.head = answer->value, .columns = answer->columns})
                    : failure(answer.error().message);
    changed_.notify_all();
  };
  std::unique_lock lock(mutex_);
  if (prompts) ++num_answering_;
  hosts.call(std::move(call));
  for (;;) {
    const auto has_news = [&] { return *returned || (prompts && !waiting_.empty()); };
    if (!stop.may_stop()) {
      changed_.wait(lock, has_news);
    } else if (!changed_.wait_for(lock, kLook, has_news)) {
      if (!stop.load()) continue;
      given_up.request_stop();
      *returned = failure("the run ends");
    }
    if (*returned) break;
    const Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    next.reply(answer_of(prompts, next.question));
    lock.lock();
  }
  if (prompts && --num_answering_ == 0) {
    for (const Waiting& late : std::exchange(waiting_, {}))
      late.reply(
          failure(fmt::format("{}: the function that took prompts has ended", late.question.what)));
  }
  return std::move(**returned);
}

}  // namespace slime::plugin
