-- Batch: numbers for rank 0 travel together. Each processor adds up the integers that its process gives to it,
-- and 10 ms after the first one it sends their sum and their number to rank 0, whose processor delivers them.
--
-- So rank 0 gets one message from each process in 10 ms, however many numbers there are.

local interval = 10
local sum, count = 0, 0

function on_message(message)
  if message.source ~= rank then
    message:deliver() -- A batch of another process, at rank 0.
    return
  end
  if count == 0 then
    timer(interval)
  end
  sum = sum + message:view("int64"):sum()
  count = count + #message:view("int64")
end

function on_timer()
  local batch = new(16)
  batch:view("int64")[1] = sum
  batch:view("int64")[2] = count
  if rank == 0 then
    batch:deliver()
  else
    batch:send(0)
  end
  sum, count = 0, 0
end
