#include "plugin/questions.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "core/error.h"

namespace slime::plugin {

Replies::Replies(int wake) : wake_(::fcntl(wake, F_DUPFD_CLOEXEC, 0)) {
  check(wake_ >= 0, "there is a descriptor for an event");
}

Replies::~Replies() { ::close(wake_); }

void Replies::add(Reply reply) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(reply));
  ::eventfd_write(wake_, 1);
}

std::vector<Reply> Replies::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(waiting_, {});
}

}  // namespace slime::plugin
