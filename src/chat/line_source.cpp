#include "chat/line_source.h"

#include <fmt/format.h>
#include <histedit.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cwchar>
#include <system_error>

#include "core/error.h"
#include "text/unicode/unicode.h"

namespace slime::chat {
namespace {

constexpr int kHistorySize = 1000;

volatile std::sig_atomic_t has_interrupt = 0;

void note_interrupt(int) { has_interrupt = 1; }

/// Characters of UTF-8, whatever the environment says: libedit counts columns by them.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
}

class EditedLines final : public LineSource {
 public:
  EditedLines(std::filesystem::path history, CompleteFn complete)
      : history_file_(std::move(history)), complete_(std::move(complete)) {
    use_utf8();
    block_interrupts();
    editor_ = ::el_init("slime", stdin, stdout, stderr);
    history_ = ::history_init();
    HistEvent event;
    ::history(history_, &event, H_SETSIZE, kHistorySize);
    ::history(history_, &event, H_SETUNIQUE, 1);
    ::el_set(editor_, EL_CLIENTDATA, this);
    ::el_set(editor_, EL_PROMPT, &prompt_of);
    ::el_set(editor_, EL_EDITOR, "emacs");
    ::el_set(editor_, EL_HIST, ::history, history_);
    ::el_set(editor_, EL_GETCFN, &read_character);
    ::el_set(editor_, EL_ADDFN, "slime-complete", "complete a command", &complete_line);
    ::el_set(editor_, EL_BIND, "^I", "slime-complete", nullptr);
    ::el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    ::el_source(editor_, nullptr);  // the user's ~/.editrc
    if (!history_file_.empty()) ::history(history_, &event, H_LOAD, history_file_.c_str());
  }
  ~EditedLines() override {
    ::history_end(history_);
    ::el_end(editor_);
  }
  EditedLines(const EditedLines&) = delete;
  EditedLines& operator=(const EditedLines&) = delete;

  TypedLine next(const std::string& prompt) override {
    prompt_ = prompt;
    has_interrupt = 0;
    ::el_resize(editor_);
    int count = 0;
    const char* line = ::el_gets(editor_, &count);
    if (has_interrupt != 0) {
      ::el_reset(editor_);
      std::fputs("^C\n", stdout);
      return {LineEnd::kInterrupted, ""};
    }
    if (line == nullptr || count <= 0) {
      std::fputs("\n", stdout);
      return {LineEnd::kEnd, ""};
    }
    std::string text(line, static_cast<std::size_t>(count));
    while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
    if (!text.empty()) remember(text);
    return {LineEnd::kLine, std::move(text)};
  }

 private:
  static void block_interrupts() {
    struct sigaction action {};
    action.sa_handler = note_interrupt;
    ::sigaction(SIGINT, &action, nullptr);
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  }

  static EditedLines& self(EditLine* editor) {
    void* data = nullptr;
    ::el_get(editor, EL_CLIENTDATA, &data);
    return *static_cast<EditedLines*>(data);
  }
  static char* prompt_of(EditLine* editor) { return self(editor).prompt_.data(); }

  /// One character, or an end at Ctrl-C, which comes only while this waits.
  static int read_character(EditLine* editor, wchar_t* out) {
    sigset_t open;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &open);
    ::sigdelset(&open, SIGINT);
    std::mbstate_t state{};
    while (true) {
      pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
      const int ready = ::ppoll(&input, 1, nullptr, &open);
      if (ready < 0) {
        if (errno != EINTR) return -1;
        if (has_interrupt != 0) return 0;
        ::el_set(editor, EL_REFRESH);  // the window has another size, or the program goes on
        continue;
      }
      char byte = 0;
      const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
      if (count == 0) return 0;
      if (count < 0) {
        if (errno == EINTR || errno == EAGAIN) continue;
        return -1;
      }
      const std::size_t used = std::mbrtowc(out, &byte, 1, &state);
      if (used == static_cast<std::size_t>(-2)) continue;  // not whole
      if (used == static_cast<std::size_t>(-1)) {
        state = {};
        *out = L'\uFFFD';
      }
      return 1;
    }
  }

  static unsigned char complete_line(EditLine* editor, int) {
    EditedLines& own = self(editor);
    const LineInfo* line = ::el_line(editor);
    const std::string begin(line->buffer, line->cursor);
    const std::vector<std::string> words = own.complete_(begin);
    if (words.empty()) return CC_REFRESH_BEEP;
    std::string common = words.front();
    for (const std::string& word : words) {
      std::size_t same = 0;
      while (same < std::min(common.size(), word.size()) && common[same] == word[same]) ++same;
      common.resize(same);
    }
    if (words.size() == 1) common += ' ';
    if (common.size() > begin.size()) {
      ::el_insertstr(editor, common.c_str() + begin.size());
      return CC_REFRESH;
    }
    std::string list = "\n";
    for (const std::string& word : words) list += word + "  ";
    std::fputs((list + "\n").c_str(), stdout);
    return CC_REDISPLAY;
  }

  void remember(const std::string& text) {
    HistEvent event;
    ::history(history_, &event, H_ENTER, text.c_str());
    if (history_file_.empty()) return;
    std::error_code ignored;
    std::filesystem::create_directories(history_file_.parent_path(), ignored);
    const mode_t before = ::umask(0077);  // questions are nobody else's
    ::history(history_, &event, H_SAVE, history_file_.c_str());
    ::umask(before);
  }

  const std::filesystem::path history_file_;
  const CompleteFn complete_;
  EditLine* editor_ = nullptr;
  History* history_ = nullptr;
  std::string prompt_;
};

class PlainLines final : public LineSource {
 public:
  TypedLine next(const std::string& /*prompt*/) override {
    ++number_;
    std::string text;
    int byte = 0;
    while ((byte = std::getc(stdin)) != EOF && byte != '\n') {
      if (text.size() == kLongestQuestion)
        throw ConfigError(
            fmt::format("standard input, line {}: is longer than {} MiB, the most that a question "
                        "may have",
                        number_, kLongestQuestion >> 20));
      text += static_cast<char>(byte);
    }
    if (std::ferror(stdin) != 0)
      throw std::system_error(errno, std::generic_category(), "standard input");
    if (byte == EOF && text.empty()) return {LineEnd::kEnd, ""};
    if (!text::is_valid_utf8(text))
      throw ConfigError(fmt::format("standard input, line {}: is not UTF-8", number_));
    if (text.ends_with('\r')) text.pop_back();
    return {LineEnd::kLine, std::move(text)};
  }

 private:
  int64_t number_ = 0;  // of the line, from 1
};

}  // namespace

std::unique_ptr<LineSource> edited_lines(const std::filesystem::path& history,
                                         CompleteFn complete) {
  return std::make_unique<EditedLines>(history, std::move(complete));
}

std::unique_ptr<LineSource> plain_lines() { return std::make_unique<PlainLines>(); }

}  // namespace slime::chat
