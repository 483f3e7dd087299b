-- Counter: one number for the whole group, kept by the processor of rank 0. A process sends there by how much it
-- is to grow, and receives what it was before: all get different numbers, and rank 0 need not compute for that.
--
-- A request has its sender for its root. The answer goes to the module of that process, which delivers it.

local total = 0

function on_message(message)
  if rank == 0 and message.length == 8 then
    local answer = new(16, message.tag, message.root)
    answer:view("int64")[1] = total
    total = total + message:view("int64")[1]
    answer:send(message.root)
  else
    -- Of an answer, the first 8 of its 16 bytes are the number.
    local told = new(8, message.tag, message.root)
    told:view("int64")[1] = message:view("int64")[1]
    told:deliver()
  end
end
