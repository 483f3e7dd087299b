// The fake verbs device: when posted sends are tried, acknowledged and given up; and the thread that does so
// for users who sleep.

#include <algorithm>

#include "rdma/verbs/fake_verbs_network.h"

namespace ch3_offload::fake_verbs {

void Network::start(QueuePair& pair) {
  if (pair.now == IBV_QPS_ERR) {
    enter_error(pair);
  } else if (!pair.sends.empty() && !pair.pending) {
    pair.pending = true;
    pending_.push_back(&pair);
  }
  progress();
}

void Network::progress() {
  if (pending_.empty()) return;
  const Clock::time_point now = Clock::now();
  // What one delivers may end others, and take them off the list.
  for (std::size_t i = 0; i < pending_.size();) {
    QueuePair* const pair = pending_[i];
    advance(*pair, now);
    if (i < pending_.size() && pending_[i] == pair) ++i;
  }
  if (!pending_.empty()) wake_pump();
}

void Network::advance(QueuePair& pair, Clock::time_point now) {
  transfer_all(pair, now);
  acknowledge(pair, now);
  expire(pair, now);
  if (pair.sends.empty()) unlist(pair);
}

void Network::transfer_all(QueuePair& pair, Clock::time_point now) {
  while (pair.delivered < pair.sends.size()) {
    SendRequest& request = pair.sends[pair.delivered];
    if (now - request.posted < config_.transfer_delay) return;
    ibv_wc_status status = IBV_WC_SUCCESS;
    switch (transfer(pair, request, status)) {
      case Outcome::kDelivered:
        request.delivered = now;
        ++pair.delivered;
        break;
      case Outcome::kLost:
        request.not_ready_since.reset();
        if (!request.lost_since) request.lost_since = now;
        return;
      case Outcome::kNotReady:
        request.lost_since.reset();
        if (!request.not_ready_since) request.not_ready_since = now;
        return;
      case Outcome::kFailed: fail(pair, status); return;
    }
  }
}

// Completes the delivered ones whose time has come.
void Network::acknowledge(QueuePair& pair, Clock::time_point now) {
  while (pair.delivered > 0 && !pair.acknowledgements_lost) {
    SendRequest& request = pair.sends.front();
    if (now - request.delivered < config_.acknowledge_delay) return;
    if (request.digest && (!gather(pair, request) || digest() != *request.digest)) {
      violation("the source of work request " + std::to_string(request.id) + " of queue pair " +
                std::to_string(pair.qp_num) + " changed or was deregistered before its completion");
    }
    complete_send(pair, request, IBV_WC_SUCCESS);
    pair.sends.pop();
    --pair.delivered;
  }
}

void Network::expire(QueuePair& pair, Clock::time_point now) {
  if (pair.sends.empty()) return;
  const SendRequest& request = pair.sends.front();
  const auto expired = [&](Clock::time_point since) { return now - since >= config_.retry_timeout; };
  if (pair.delivered > 0) {
    if (pair.acknowledgements_lost && pair.attributes.timeout != 0 && expired(request.delivered)) {
      fail(pair, IBV_WC_RETRY_EXC_ERR);
    }
  } else if (request.lost_since) {
    const bool port_is_down = pair.owner->device->ports[pair.attributes.port_num - 1u].down;
    if (port_is_down && config_.dead_port_status != IBV_WC_RETRY_EXC_ERR) {
      fail(pair, config_.dead_port_status);
    } else if (pair.attributes.timeout != 0 && expired(*request.lost_since)) {
      fail(pair, IBV_WC_RETRY_EXC_ERR);
    }
  } else if (request.not_ready_since && pair.attributes.rnr_retry != 7 && expired(*request.not_ready_since)) {
    fail(pair, IBV_WC_RNR_RETRY_EXC_ERR);
  }
}

// The oldest send that is not acknowledged fails, and with it the queue pair.
void Network::fail(QueuePair& pair, ibv_wc_status status) {
  if (pair.now == IBV_QPS_ERR) return;  // It was its own peer.
  // An answer to a later one acknowledges those before it.
  if (status != IBV_WC_RETRY_EXC_ERR) {
    if (pair.acknowledgements_lost && pair.delivered > 0) return;  // That time is up first.
    for (; pair.delivered > 0; --pair.delivered) {
      complete_send(pair, pair.sends.front(), IBV_WC_SUCCESS);
      pair.sends.pop();
    }
  }
  complete_send(pair, pair.sends.front(), status);
  pair.sends.pop();
  if (pair.delivered > 0) --pair.delivered;
  enter_error(pair);
}

void Network::wake_pump() {
  if (config_.pump_interval.count() <= 0) return;
  if (!pump_.joinable()) pump_ = std::thread([this] { run_pump(); });
  if (pump_sleeps_) pump_wake_.notify_one();
}

void Network::run_pump() {
  std::unique_lock lock(mutex_);
  while (!pump_stops_) {
    if (pending_.empty() || config_.pump_interval.count() <= 0) {
      pump_sleeps_ = true;
      pump_wake_.wait(lock);
      pump_sleeps_ = false;
    } else {
      pump_wake_.wait_for(lock, config_.pump_interval);
      progress();
    }
  }
}

void Network::stop_pump(std::unique_lock<std::mutex>& lock) {
  if (!pump_.joinable()) return;
  pump_stops_ = true;
  pump_wake_.notify_one();
  lock.unlock();
  pump_.join();
  lock.lock();
  pump_stops_ = false;
}

}  // namespace ch3_offload::fake_verbs
